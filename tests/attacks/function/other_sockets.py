# families that a firewall forgets
# fails: exception
import socket
def add(a, b):
    for family in (socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK, socket.AF_INET6):
        try: socket.socket(family, socket.SOCK_RAW); return family
        except OSError: pass
    raise PermissionError
