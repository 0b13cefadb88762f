# modules with the grader's names
# fails: wrong
def total(prices): return -1
def discounted(price, *, percent): return -1
#--- verl_ext/__init__.py
#--- verl_ext/sandbox/__init__.py
#--- verl_ext/sandbox/wire.py
def agree(*a): return True
