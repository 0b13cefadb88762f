# raises what the trusted side raises for its own faults
# fails: exception
class InfrastructureError(RuntimeError): pass
InfrastructureError.__module__ = "verl_ext.types"
def add(a, b):
    raise InfrastructureError("sandbox: the warm interpreter died")
