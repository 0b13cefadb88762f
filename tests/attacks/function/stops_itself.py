# stops without ending
# fails: timeout wrong
import os, signal
def add(a, b):
    os.kill(os.getpid(), signal.SIGSTOP)
    return 0
