# a finder that answers every import
# fails: wrong
import sys, types
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None): return None
sys.meta_path.insert(0, Finder); sys.path[:] = []; sys.modules["json"] = types.ModuleType("json")
def add(a, b):
    return 0
