# the same in the class's own call
# fails: exception
class M(type):
    def __call__(cls, *a): raise SystemExit(0)
class Account(metaclass=M): pass
