# one large allocation
# fails: memory
def add(a, b):
    return len(bytearray(4 << 30))
