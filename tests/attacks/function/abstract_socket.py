# a socket without a file, which a mount namespace does not hide
# fails: exception
import socket
def add(a, b):
    socket.socket(socket.AF_UNIX).connect('\0SECRET'); return 0
