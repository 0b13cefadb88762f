# leaves with success while it is imported
# fails: import
import sys; sys.exit(0)
