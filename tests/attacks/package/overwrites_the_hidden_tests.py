# a file with the hidden file's name
# fails: wrong
def total(prices): return -1
def discounted(price, *, percent): return -1
#--- test_shop.py
def test_ok(): pass
