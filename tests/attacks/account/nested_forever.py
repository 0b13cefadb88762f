# an answer that holds itself
# fails: wrong
class Account:
    def __init__(self, balance=0): self.all = []
    def deposit(self, amount):
        self.all.append(self.all)
        return self.all
    withdraw = deposit
