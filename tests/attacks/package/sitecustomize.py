# code that interpreters run at their start
# fails: wrong
def total(prices): return -1
def discounted(price, *, percent): return -1
#--- sitecustomize.py
import os; os._exit(0)
#--- usercustomize.py
import os; os._exit(0)
#--- site.pth
import os; os._exit(0)
