"""For all tests."""

import signal
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# `make test &` in a script starts with interruptions ignored, which children inherit; some tests interrupt them.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # xdist's own reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say what may run at the same time (pytest-xdist, ``--dist loadgroup``): different files may, but for those that
    look on the whole machine for what a sandbox left behind."""
    for item in items:
        file = item.path.relative_to(HERE)
        group = "sandbox" if file.parts[0] in ("attacks", "sandbox") else str(file)
        item.add_marker(pytest.mark.xdist_group(group))
