# files without end
# fails: wrong timeout
def add(a, b):
    for i in range(100):
        try:
            with open(f'/tmp/{i}', 'wb') as f: f.write(bytes(16 << 20))
        except OSError: pass
    return 0
