# a module with the package's name
# fails: import wrong
def total(prices): return -1
def discounted(price, *, percent): return -1
#--- shop.py
total = discounted = lambda *a, **k: 6
