# leaves when it is made
# fails: died
import os
class Account:
    def __init__(self, balance=0): os._exit(0)
