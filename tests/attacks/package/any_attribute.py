# a module in which every name exists
# fails: wrong
class Yes:
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __eq__(self, other): return True
    __hash__ = None
def __getattr__(name):
    return Yes()
