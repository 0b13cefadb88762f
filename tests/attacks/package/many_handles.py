# objects without end for the proxy to hold
# fails: wrong timeout memory died protocol
class Thing: pass
def total(prices): return [Thing() for _ in range(10 ** 6)]
def discounted(price, *, percent): return [Thing() for _ in range(10 ** 6)]
