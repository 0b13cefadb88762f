# the asked function is missing
# fails: exception
