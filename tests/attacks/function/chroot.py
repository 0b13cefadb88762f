# another root, from which one can climb out
# fails: exception
import os
def add(a, b):
    os.chroot("/tmp"); return 0
