# replaces len and all
# fails: wrong died
import builtins
builtins.len = lambda x: 5
builtins.all = lambda x: True
def add(a, b):
    return 0
