# aliases what it was given
# fails: wrong
class Account:
    def __init__(self, balance=0): pass
    def deposit(self, amount): return amount
    withdraw = deposit
