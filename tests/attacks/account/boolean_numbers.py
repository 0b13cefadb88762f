# numbers of another type that compare equal
# fails: wrong
class Account:
    def __init__(self, balance=0): self.balance = balance
    def deposit(self, amount):
        self.balance += amount
        return complex(self.balance)
    def withdraw(self, amount):
        if amount > self.balance: raise ValueError
        self.balance -= amount
        return complex(self.balance)
