# sets the machine's clock
# fails: exception
import time
def add(a, b):
    time.clock_settime(time.CLOCK_REALTIME, 0); return 0
