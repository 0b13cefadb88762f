# greater than everything
# fails: wrong
def add(a, b):
    return float("inf")
