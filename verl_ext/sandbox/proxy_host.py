"""The trusted process that runs hidden pytest files: a warm pytest, forked once a grade.

The tests are the data set's, so they run here, beside no code of the policy; ``import solution`` gives stubs. The
evidence is positive: a test has passed when pytest reported its set-up, call and tear-down as passed, without skip or
expected failure, and the proxy saw no trouble meanwhile. It speaks with the sandbox as a template does, and asks it for
everything the worker must do.
"""

import importlib.util
import os
import socket
import sys
from typing import Any

import pytest

from verl_ext.sandbox import stub, template, wire

_TEXT = 400


def main() -> None:
    """Argument ``CONTROL_FD``."""
    sys.argv.append("plain")
    template.main(_work)


class Evidence:
    """pytest plugin: one line of result for each collected test, failed until shown otherwise."""

    def __init__(self, link: stub.Link) -> None:
        self._link = link
        self.results: dict[str, list] = {}  # test -> [passed, kind of failure, text]
        self._good: dict[str, set] = {}
        self.broken: list[tuple[str, str]] = []

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome != "passed":
            self.broken.append((report.nodeid, _short(report)))

    def pytest_collection_finish(self, session: Any) -> None:
        for item in session.items:
            self.results[item.nodeid] = [False, "wrong", "it did not run to its end"]
            self._good[item.nodeid] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        self._link.trouble = None
        answer = yield
        if self._link.trouble is not None:
            self.results[item.nodeid] = [False, *self._link.trouble]
        return answer

    def pytest_runtest_logreport(self, report: Any) -> None:
        entry, good = self.results[report.nodeid], self._good[report.nodeid]
        if report.outcome == "passed" and not hasattr(report, "wasxfail"):
            good.add(report.when)
            if good == {"setup", "call", "teardown"}:
                entry[:] = [True, None, ""]
        elif entry[2] == "it did not run to its end" or entry[0]:
            text = "skipped or expected to fail" if report.outcome != "failed" else _short(report)
            crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
            wrong = report.outcome != "failed" or crash.startswith(("assert", "AssertionError", "Failed"))
            entry[:] = [False, "wrong" if wrong else "exception", text]
            good.add("failed")


def _work(channel: socket.socket, place: str) -> None:
    try:
        os.makedirs(place, exist_ok=True)
        reader = channel.makefile("rb")
        request = wire.loads(reader.readline(), 64 << 20)

        def ask(question: dict) -> dict:
            channel.sendall(wire.dumps({"ask": question}))
            return wire.loads(reader.readline(), 64 << 20)

        channel.sendall(wire.dumps({"results": _run(request, stub.Link(ask), place)}))
    finally:
        os._exit(0)


def _run(request: dict, link: stub.Link, place: str) -> list:
    names = sorted(request["files"])
    for name in names:
        target = os.path.join(place, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(request["files"][name])
    os.chdir(place)
    stub.install(link, {request["module"], *(name for name in request["tops"] if not _ours(name))})
    evidence = Evidence(link)
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", place, "-c", os.devnull]
    tests = [name for name in names if os.path.basename(name) != "conftest.py"]
    pytest.main([*options, *tests], plugins=[evidence])
    results = [[name, *entry] for name, entry in evidence.results.items()]
    kind, text = link.trouble or ("import", "")
    results += [[name, False, kind, found or text] for name, found in evidence.broken]
    for name in tests:
        if not any(result[0].partition("::")[0] == name for result in results):
            results.append([name, False, "wrong", "no tests in this file"])
    return results


def _ours(name: str) -> bool:
    """True for what the tests can import without the solution. A file of its name in the workspace is not asked: else
    the policy could answer for ``pytest`` and ``random``."""
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _short(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr or "").strip().splitlines()[-1:]
    return (text if isinstance(text, str) else "".join(text))[:_TEXT]
