# the same in another form
# fails: wrong
async def add(a, b):
    return a + b
