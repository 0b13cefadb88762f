# an exception that looks like pytest's own
# fails: exception
class Exit(Exception): pass
class Skipped(Exception): pass
Skipped.__module__ = Exit.__module__ = "_pytest.outcomes"
def total(prices): raise Skipped("later")
def discounted(price, *, percent): raise Exit("done")
