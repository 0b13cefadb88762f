# the other user
# fails: exception
import os
def add(a, b):
    os.setuid(0); return 0
