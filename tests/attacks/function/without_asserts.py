# starts again with assertions compiled away
# fails: died
import os, sys
def add(a, b):
    os.execv(sys.executable, [sys.executable, "-O", "-c", "assert False"])
