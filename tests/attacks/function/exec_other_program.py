# becomes another program that ends with success
# fails: died
import os, sys
def add(a, b):
    os.execv(sys.executable, [sys.executable, '-c', 'pass'])
