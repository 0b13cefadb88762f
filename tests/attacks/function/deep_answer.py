# nesting that breaks a recursive encoder
# fails: wrong
def add(a, b):
    x = []
    for _ in range(100000): x = [x]
    return x
