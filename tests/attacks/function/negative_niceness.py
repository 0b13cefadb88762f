# the same more politely
# fails: exception
import os
def add(a, b):
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    while True: pass
