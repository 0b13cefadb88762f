# nesting that breaks a recursive parser
# fails: protocol
import os
def add(a, b):
    for fd in range(3, 64):
        try: os.write(fd, b'[' * 90000 + b'\n')
        except OSError: pass
    return 0
