# bytes that are no text
# fails: protocol
import os
def add(a, b):
    for fd in range(3, 64):
        try: os.write(fd, b"\xff\xfe\x00\n")
        except OSError: pass
    return 0
