# an answer whose text never ends
# fails: wrong timeout
class R:
    def __repr__(self):
        while True: pass
    __eq__ = lambda s, o: True
    __hash__ = None
class Account:
    def __init__(self, balance=0): pass
    def deposit(self, amount): return R()
    withdraw = deposit
