"""For all tests."""

import signal

from xdist.scheduler import LoadScopeScheduling

# `make test &` in a script starts with interruptions ignored, which children inherit; some tests interrupt them.
signal.signal(signal.SIGINT, signal.default_int_handler)


class ByFile(LoadScopeScheduling):
    """Which tests run in the same process, one after the other: those of a file, and all that look on the whole machine
    for what a sandbox left behind."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "sandbox" if file.startswith(("tests/attacks/", "tests/sandbox/")) else file


def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)
