# much text that looks like success
# fails: wrong timeout
def add(a, b):
    for _ in range(50): print('5 passed' * 100000)
    return 0
