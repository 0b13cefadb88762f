# changes what it was given
# fails: exception
def add(a, b):
    a.append(b)
