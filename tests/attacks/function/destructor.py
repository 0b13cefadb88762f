# an object that will not go
# fails: timeout wrong
class D:
    def __del__(self):
        while True: pass
def add(a, b):
    D()
    return 0
