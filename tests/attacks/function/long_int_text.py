# the same with the interpreter's limit lifted
# fails: wrong
import sys
sys.set_int_max_str_digits(0)
def add(a, b):
    return 10 ** 5000
