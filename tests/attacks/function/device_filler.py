# writes to where devices are, which no quota counts
# fails: exception
def add(a, b):
    open('/dev/filler', 'w').write('x' * 100); return 0
