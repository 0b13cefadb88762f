# empty files without end
# fails: wrong exception
def add(a, b):
    for i in range(100000):
        open(f"/tmp/{i}", "w").close()
    return 0
