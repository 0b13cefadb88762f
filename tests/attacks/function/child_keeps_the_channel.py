# leaves a child that holds the channel open
# fails: died
import os, time
def add(a, b):
    if os.fork() == 0: time.sleep(600)
    os._exit(0)
