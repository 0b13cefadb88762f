# catches the exception that a time-out raises
# fails: timeout
def add(a, b):
    while True:
        try:
            while True: pass
        except BaseException: pass
