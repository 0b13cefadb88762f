# an iterator that never ends
# fails: timeout wrong memory died protocol
class Endless:
    def __iter__(self): return self
    def __next__(self): return 1
def total(prices):
    return sum(Endless())
def discounted(price, *, percent): return Endless()
