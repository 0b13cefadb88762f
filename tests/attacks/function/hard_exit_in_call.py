# the process ends with status 0 in the middle of a test
# fails: died
import os
def add(a, b):
    os._exit(0)
