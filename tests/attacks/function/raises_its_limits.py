# lifts the limits on itself
# fails: exception memory
import resource
def add(a, b):
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return len(bytearray(4 << 30))
