# an endless loop
# fails: timeout
def add(a, b):
    while True: pass
