# nothing, many times
# fails: protocol
import os
def add(a, b):
    for fd in range(3, 64):
        try: os.write(fd, b"\n" * 10000)
        except OSError: pass
    return 0
