# many small ones
# fails: memory
def add(a, b):
    x = []
    while True: x.append(bytes(16 << 20))
