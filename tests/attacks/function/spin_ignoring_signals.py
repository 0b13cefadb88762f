# an endless loop that ignores what it may ignore
# fails: timeout
import signal
def add(a, b):
    for s in range(1, 65):
        try: signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while True: pass
