# an exception that ends the test session
# fails: exception
def total(prices): raise KeyboardInterrupt
def discounted(price, *, percent): raise SystemExit(0)
