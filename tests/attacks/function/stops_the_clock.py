# takes its CPU timer away
# fails: timeout
import signal
def add(a, b):
    for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF): signal.setitimer(which, 0)
    while True: pass
