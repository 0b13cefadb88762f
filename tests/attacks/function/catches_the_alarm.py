# turns the time-out's signals into nothing
# fails: timeout
import signal
def add(a, b):
    for s in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU, signal.SIGTERM):
        signal.signal(s, lambda *x: None)
    while True: pass
