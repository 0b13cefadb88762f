# raises what a busy machine might cause
# fails: memory
def add(a, b):
    raise MemoryError
