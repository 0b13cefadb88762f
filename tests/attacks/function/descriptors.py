# open files without end
# fails: exception
def add(a, b):
    files = []
    while True: files.append(open("/dev/null"))
