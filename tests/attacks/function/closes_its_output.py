# output that cannot be read, then success
# fails: exception
import os, sys
def add(a, b):
    os.close(1); os.close(2)
    sys.exit(0)
