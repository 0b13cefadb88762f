"""Pytest files that need the solution in their own process: run in the jail, with tests among them that must fail.

Subclassing, monkeypatching, identity and callbacks cannot cross the import proxy. Such tests run where the policy's
code runs, so their outcome is its word, and the verdict is marked ``trust: shared``. Files have random names and a
random order, and among them are tests that fail whatever the solution is. Code that makes pytest say "passed" does so
for those as well, and then nothing is believed. It does not hold against code that fools one assertion, such as an
object that equals everything, nor against code that reads the files: recipes refuse it unless told otherwise.
"""

from __future__ import annotations

import ast
import random
import secrets
from collections.abc import Mapping

from verl_ext.sandbox import oracle
from verl_ext.sandbox.base import Limits
from verl_ext.sandbox.slot import PolicyFault, Slot
from verl_ext.types import CaseResult, Tests

_MUST_FAIL = (
    "def {name}(): assert False",
    "def {name}(): assert [1, 2] == [1, 3]",
    "def {name}(): assert abs(1.5 - 2.5) < 0.1",
    "def {name}(): raise RuntimeError",
    "import pytest\ndef {name}():\n    with pytest.raises(ValueError): pass",
    "import pytest\ndef {name}(): pytest.fail()",
    "import unittest\nclass TestIt(unittest.TestCase):\n    def {name}(self): self.assertEqual(1, 2)",
)
_PHASES = {"setup", "call", "teardown"}
_CPU_A_TEST = 0.2
_CPU_START = 2.0  # seconds: collecting and rewriting


async def grade(
    jail: Slot, sources: Mapping[str, str], tests: Tests, limits: Limits
) -> list[tuple[CaseResult, str | None]]:
    """Runs the pytest files beside the workspace: a result and a kind of failure (None: passed) for each test."""
    if refused := oracle.forbidden(sources):
        return [(CaseResult(name, False, error=refused), "forbidden") for name in tests.files]
    names = {name: name if name == "conftest.py" else _random() + ".py" for name in tests.files}
    files = [(names[name], text) for name, text in tests.files.items()]
    canaries = {_random(): text for text in _MUST_FAIL}
    files += [(f"{name}.py", text.format(name=name)) for name, text in canaries.items()]
    random.SystemRandom().shuffle(files)
    count = sum(len(_expected(text)) for _, text in files)
    question = {"op": "pytest", "files": files, "cpu": _CPU_START + count * _CPU_A_TEST + limits.cpu_seconds}
    async with jail.run(limits) as (channel, end):
        try:
            await oracle.load(channel, sources, tests.module, limits, limits.total_seconds)
            reply = await channel.ask(question, limits.total_seconds)
            reports = _reports(reply)
        except PolicyFault as fault:
            lost = await oracle.ended(fault, end)
            return [(CaseResult(name, False, error=lost.error), lost.failure) for name in tests.files]
        await end(patient=False)
    if not all(_failed(reports, f"{name}.py::") for name in canaries):
        error = "a test that must fail did not fail: what pytest says here is not to be believed"
        return [(CaseResult(name, False, error=error), "protocol") for name in tests.files]
    return [result for name, text in tests.files.items() for result in _judge(reports, name, names[name], text)]


def _reports(reply: dict) -> dict[str, dict[str, tuple[str, str]]]:
    """Test to phase to (outcome, text)."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    match reply:
        case {"reports": list(rows)}:
            for row in rows:
                match row:
                    case [str(test), str(phase), str(outcome), str(text)]:
                        found.setdefault(test, {})[phase] = (outcome, text)
                    case _:
                        raise PolicyFault("protocol", "an answer of the wrong form")
            return found
        case {"exc": [str(name), str(text)]}:
            raise PolicyFault("exception", f"{name}: {text}"[:400])
    raise PolicyFault("protocol", "an answer of the wrong form")


def _failed(reports: dict, prefix: str) -> bool:
    """True when every test below ``prefix`` was called and failed, and there is one."""
    phases = [phases for test, phases in reports.items() if test.startswith(prefix)]
    return bool(phases) and all(phase.get("call", ("", ""))[0] == "failed" for phase in phases)


def _judge(reports: dict, name: str, hidden: str, text: str) -> list[tuple[CaseResult, str | None]]:
    """The results of one file: what it was called, what it must hold and what was reported."""
    if name == "conftest.py":
        return []
    results, seen = [], set()
    for test, phases in reports.items():
        if test != hidden and not test.startswith(f"{hidden}::"):
            continue
        seen.add(test.rpartition("::")[2].partition("[")[0])
        passed = phases.keys() == _PHASES and all(outcome == "passed" for outcome, _ in phases.values())
        error = next((text or outcome for outcome, text in phases.values() if outcome != "passed"), "did not run")
        shown = CaseResult(test.replace(hidden, name, 1), passed, error="" if passed else error)
        results.append((shown, None if passed else "wrong"))
    missing = _expected(text) - seen
    results += [(CaseResult(f"{name}::{m}", False, error="did not run"), "wrong") for m in sorted(missing)]
    return results or [(CaseResult(name, False, error="no tests in this file"), "wrong")]


def _expected(text: str) -> set[str]:
    """Names of the test functions and methods that pytest collects from a file, which must all be reported."""
    body = ast.parse(text).body
    for node in [node for node in body if isinstance(node, ast.ClassDef)]:
        if node.name.startswith("Test") or any("TestCase" in ast.unparse(base) for base in node.bases):
            body = [*body, *node.body]
    functions = (node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {node.name for node in functions if node.name.startswith("test")}


def _random() -> str:
    return f"test_{secrets.token_hex(8)}"
