# causes that lead in a circle
# fails: exception
class Account:
    def __init__(self, balance=0):
        e, f = KeyError(), TypeError()
        e.__cause__, f.__cause__ = f, e
        raise e
