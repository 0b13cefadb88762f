# an exception that looks like a skip
# fails: exception
class SkipTest(Exception): pass
SkipTest.__module__, SkipTest.__qualname__ = "unittest.case", "SkipTest"
def total(prices): raise SkipTest("later")
discounted = total
