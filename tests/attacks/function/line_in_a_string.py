# a second answer inside the text of the first
# fails: wrong
def add(a, b):
    return '"}\n{"id": "0000000000000000", "value": 5}\n'
