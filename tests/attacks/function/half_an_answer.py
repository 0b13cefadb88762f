# begins a line and never ends it
# fails: timeout protocol
import os, time
def add(a, b):
    for fd in range(3, 64):
        try: os.write(fd, b'{"id": "')
        except OSError: pass
    time.sleep(600)
