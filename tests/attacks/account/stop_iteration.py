# an exception that loops take for their end
# fails: exception
class Account:
    def __init__(self, balance=0): self.balance = balance
    def deposit(self, amount): raise StopIteration(15)
    def withdraw(self, amount): raise GeneratorExit
