# one balance for all instances
# fails: wrong
class Account:
    balance = 0
    def __init__(self, balance=0): Account.balance += balance
    def deposit(self, amount):
        Account.balance += amount
        return Account.balance
    def withdraw(self, amount):
        if amount > self.balance + 100: raise ValueError
        Account.balance -= amount
        return Account.balance
