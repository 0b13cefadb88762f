# data in the form in which the wire writes types
# fails: wrong
def add(a, b):
    return {"$": "int", "v": 5, "value": 5, "id": "0", "passed": True}
