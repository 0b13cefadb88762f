# a link out of the jail
# fails: exception
import os
def add(a, b):
    os.symlink("/etc/shadow", "/tmp/link"); return len(open("/tmp/link").read())
