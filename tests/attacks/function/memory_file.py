# the same as a file without a name
# fails: exception
import os
def add(a, b):
    fd = os.memfd_create("x"); os.ftruncate(fd, 4 << 30); return fd
