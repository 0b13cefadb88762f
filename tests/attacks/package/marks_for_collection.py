# names that pytest looks for in a module
# fails: wrong
class Mark:
    name, args, kwargs = "skip", (), {}
pytestmark = [Mark()]
pytest_plugins = ["no_such_plugin"]
__test__ = False
collect_ignore = ["test_shop.py"]
def total(prices): return -1
def discounted(price, *, percent): return -1
