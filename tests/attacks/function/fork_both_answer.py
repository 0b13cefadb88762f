# two processes answer one question
# fails: wrong
import os
def add(a, b):
    os.fork()
    return 0
