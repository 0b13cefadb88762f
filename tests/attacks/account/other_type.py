# the class makes something else
# fails: exception wrong
class Account:
    def __new__(cls, *a): return 15
