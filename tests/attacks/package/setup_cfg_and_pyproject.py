# the same in the other places where it is looked for
# fails: wrong
def total(prices): return -1
def discounted(price, *, percent): return -1
#--- setup.cfg
[tool:pytest]
addopts = --collect-only
#--- tox.ini
[pytest]
addopts = --collect-only
#--- pyproject.toml
[tool.pytest.ini_options]
addopts = "--collect-only"
