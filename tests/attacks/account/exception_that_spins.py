# an exception whose text never comes
# fails: timeout
class E(ValueError):
    def __str__(self):
        while True: pass
class Account:
    def __init__(self, balance=0): pass
    def deposit(self, amount): raise E
    def withdraw(self, amount): raise E
