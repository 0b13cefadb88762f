# the project's own files, where tests would lie
# fails: exception
import os
def add(a, b):
    return len(open(os.path.join('REPO', 'pyproject.toml')).read())
