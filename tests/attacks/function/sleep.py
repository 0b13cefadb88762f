# waits for ever, which costs no CPU time
# fails: timeout
import time
def add(a, b):
    time.sleep(600)
