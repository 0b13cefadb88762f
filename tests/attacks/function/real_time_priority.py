# takes the processor from everybody else
# fails: exception
import os
def add(a, b):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    while True: pass
