# threads without end
# fails: exception
import threading, time
def add(a, b):
    while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
