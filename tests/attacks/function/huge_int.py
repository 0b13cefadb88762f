# an integer that takes for ever to print
# fails: wrong
def add(a, b):
    return 10 ** 20000
