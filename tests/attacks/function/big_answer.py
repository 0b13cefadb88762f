# an answer too long to hold
# fails: protocol
def add(a, b):
    return 'x' * (3 << 20)
