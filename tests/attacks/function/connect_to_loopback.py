# a service of the host
# fails: exception
import socket
def add(a, b):
    socket.create_connection(('127.0.0.1', PORT)); return 0
