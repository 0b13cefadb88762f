# methods that must be awaited
# fails: wrong exception
class Account:
    def __init__(self, balance=0): self.balance = balance
    async def deposit(self, amount): return self.balance + amount
    async def withdraw(self, amount): return self.balance - amount
