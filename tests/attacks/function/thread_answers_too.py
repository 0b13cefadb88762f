# a thread speaks on the channel between the answers
# fails: protocol wrong
import os, threading, time
def talk():
    while True:
        for fd in range(3, 64):
            try: os.write(fd, b'{"id":"0","value":5}\n')
            except OSError: pass
        time.sleep(0.001)
def add(a, b):
    threading.Thread(target=talk, daemon=True).start()
    time.sleep(0.05)
    return 0
