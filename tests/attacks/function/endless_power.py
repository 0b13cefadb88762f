# arithmetic that takes for ever
# fails: timeout memory
def add(a, b):
    return 7 ** 7 ** 10 % 10
