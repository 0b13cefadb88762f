# promises instead of an answer
# fails: wrong
def add(a, b):
    yield a + b
