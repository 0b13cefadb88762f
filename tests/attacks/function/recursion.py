# the stack overflows
# fails: exception
def add(a, b):
    return add(a, b)
