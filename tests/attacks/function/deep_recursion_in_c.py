# overflows the stack with the guard lifted
# fails: died exception memory timeout
import sys
sys.setrecursionlimit(10 ** 9)
def add(a, b):
    return repr(a) if a == b else add(a, b)
