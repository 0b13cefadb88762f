# is no Python
# fails: import
def add(a, b) return
