# an answer without end
# fails: protocol
import os
def add(a, b):
    while True:
        for fd in range(3, 64):
            try: os.write(fd, b'x' * 65536)
            except OSError: pass
