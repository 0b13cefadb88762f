# an exception whose text ends the process
# fails: died
import os
class E(ValueError):
    def __str__(self): os._exit(0)
class Account:
    def __init__(self, balance=0): raise E
