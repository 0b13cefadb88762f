# right at first, then gone
# fails: died
import os
CALLS = []
def total(prices):
    CALLS.append(1)
    if len(CALLS) > 1: os._exit(0)
    return sum(prices)
def discounted(price, *, percent): return 0
