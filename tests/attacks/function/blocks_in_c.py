# an endless calculation that never returns to the interpreter
# fails: timeout
import re
def add(a, b):
    return bool(re.match(r"(a|aa|a)+$", "a" * 60 + "b"))
