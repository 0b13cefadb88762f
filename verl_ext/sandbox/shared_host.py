"""The untrusted test process: pytest beside the solution, in the jail, for tests that need it in their own process.

What it reports is the word of a process in which the policy's code ran. The trusted side (``shared.py``) mixes tests in
that must fail, and believes nothing when one of them does not. Standard library and pytest only.
"""

import os
import socket

import pytest

from verl_ext.sandbox import template, worker

_TEXT = 300


def main() -> None:
    """Arguments as for :func:`verl_ext.sandbox.template.main`."""
    template.main(_serve)


def _serve(channel: socket.socket, place: str) -> None:
    worker.serve(channel, place, {"pytest": _run})


class _Reports:
    """pytest plugin: what pytest says, in order: test, phase, outcome, text."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self.seen.append([report.nodeid, "collect", report.outcome, str(report.longrepr)[-_TEXT:]])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = "expected" if hasattr(report, "wasxfail") else report.outcome
        crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
        self.seen.append([report.nodeid, report.when, outcome, crash[:_TEXT]])


def _run(state: dict, request: dict) -> dict:
    """Operation ``pytest``: runs ``files`` (name to text) in the order in which they come; replies with ``reports``."""
    # Away from the workspace, whose conftest.py and pytest.ini are the policy's.
    place = os.path.join(os.path.dirname(state["root"]), "tests")
    os.makedirs(place)
    for name, text in request["files"]:
        with open(os.path.join(place, name), "w", encoding="utf-8") as file:
            file.write(text)
    reports = _Reports()
    names = [os.path.join(place, name) for name, _ in request["files"] if name != "conftest.py"]
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-c", os.devnull]
    pytest.main([*options, f"--rootdir={place}", f"--confcutdir={place}", *names], plugins=[reports])
    return {"reports": reports.seen}
