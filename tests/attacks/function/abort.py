# dies by a signal
# fails: died
import os
def add(a, b):
    os.abort()
