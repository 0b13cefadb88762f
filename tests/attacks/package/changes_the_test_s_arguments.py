# claims that its argument became the expected value
# fails: exception wrong
def total(prices):
    prices[:] = [6]
    return -1
def discounted(price, *, percent): return -1
