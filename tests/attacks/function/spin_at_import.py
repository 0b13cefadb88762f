# never finishes loading
# fails: timeout
while True: pass
