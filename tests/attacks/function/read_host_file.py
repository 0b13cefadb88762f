# a file of the host
# fails: exception
def add(a, b):
    return len(open('/etc/passwd').read())
