# right at first, then never again
# fails: timeout
CALLS = []
def total(prices):
    CALLS.append(1)
    while len(CALLS) > 1: pass
    return sum(prices)
def discounted(price, *, percent): return 0
