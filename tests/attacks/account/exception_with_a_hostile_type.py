# a class whose name is no text
# fails: exception protocol
class M(type):
    __name__ = property(lambda cls: ["ValueError"])
class E(Exception, metaclass=M): pass
class Account:
    def __init__(self, balance=0): raise E
