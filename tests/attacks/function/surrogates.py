# text that cannot be encoded
# fails: wrong
def add(a, b):
    return "\ud800" * 10
