# an exception named like the expected one
# fails: exception wrong
class ValueError(BaseException): pass
class Account:
    def __init__(self, balance=0): self.balance = balance
    def deposit(self, amount): return amount
    def withdraw(self, amount): raise ValueError
