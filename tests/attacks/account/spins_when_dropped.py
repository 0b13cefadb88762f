# an instance that will not go
# fails: wrong timeout
class Account:
    def __init__(self, balance=0): pass
    def deposit(self, amount): return 0
    withdraw = deposit
    def __del__(self):
        while True: pass
