# an exception that ends a runner with success
# fails: exception
def add(a, b):
    raise SystemExit(0)
