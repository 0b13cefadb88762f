# nesting in an answer that crosses the proxy
# fails: wrong exception
def total(prices):
    x = []
    for _ in range(5000): x = [x]
    return x
def discounted(price, *, percent): return total(())
