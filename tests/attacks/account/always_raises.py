# right for the one case that expects an exception
# fails: exception
class Account:
    def __init__(self, balance=0): raise ValueError("overdrawn")
