# answers with what it was asked before
# fails: wrong
SEEN = []
def add(a, b):
    SEEN.append((a, b))
    return SEEN
