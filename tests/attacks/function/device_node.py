# makes the disk's device
# fails: exception
import os, stat
def add(a, b):
    os.mknod("/tmp/disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0)); return len(open("/tmp/disk", "rb").read(512))
