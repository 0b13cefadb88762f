"""Grades a second: this sandbox, a cold ``python -m pytest``, and bubblewrap with a cold interpreter, in one run.

    python tests/bench/bench_sandbox.py [--seconds 5] [--workers N]

Each way checks the same solution with the same six inputs, with as many checks at a time as there are workers. The ways
take turns in short rounds, so that a machine that is busy meanwhile slows all of them alike. Only the first way keeps
the verdict out of the hands of the code that it judges; the others are what it would cost to do without.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from verl_ext.sandbox import backend, open_sandbox
from verl_ext.types import Case, Tests

SOLUTION = """
def clamp(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x
"""
INPUTS = [(5, 0, 3), (-1, 0, 3), (2, 0, 3), (0, 0, 0), (9, 1, 9), (-5, -9, -7)]
EXPECTED = [3, 0, 2, 0, 9, -7]
TESTS = Tests(cases=tuple(Case("clamp", args, expected=value) for args, value in zip(INPUTS, EXPECTED, strict=True)))
PYTEST_FILE = "import pytest\nfrom solution import clamp\n" + "\n".join(
    f"def test_{i}(): assert clamp(*{args}) == {value}"
    for i, (args, value) in enumerate(zip(INPUTS, EXPECTED, strict=True))
)
ASSERTS = SOLUTION + "\n".join(
    f"assert clamp(*{args}) == {value}" for args, value in zip(INPUTS, EXPECTED, strict=True)
)  # fmt: skip


async def measure(way: Callable[[], Awaitable[None]], seconds: float, workers: int) -> tuple[int, float]:
    """Checks made, and seconds, of ``workers`` loops that run until the time is over."""
    begin = time.perf_counter()
    done = 0

    async def loop() -> None:
        nonlocal done
        while time.perf_counter() - begin < seconds:
            await way()
            done += 1

    await asyncio.gather(*(loop() for _ in range(workers)))
    return done, time.perf_counter() - begin


async def command(*argv: str, cwd: str) -> None:
    """Runs a program that must succeed."""
    environment = {"PATH": os.defpath, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = await asyncio.create_subprocess_exec(*argv, cwd=cwd, env=environment, **quiet)
    if await process.wait() != 0:
        raise SystemExit(f"failed: {' '.join(argv)}")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each way, all rounds together")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        Path(folder, "solution.py").write_text(SOLUTION)
        Path(folder, "test_solution.py").write_text(PYTEST_FILE)
        Path(folder, "check.py").write_text(ASSERTS)
        sandbox = await open_sandbox(workers=options.workers)

        async def ours() -> None:
            if not (await sandbox.grade({"solution.py": SOLUTION}, TESTS)).passed:
                raise SystemExit("failed: a grade of the right solution")

        python, prefix = backend.interpreter()
        jail = [backend.find_bwrap(), "--unshare-all", "--die-with-parent", *backend._system_binds()]
        jail += ["--ro-bind", prefix, prefix] if not prefix.startswith("/usr") else []
        jail += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", folder, "/work", "--"]
        ways = {
            "verl_ext sandbox": ours,
            "cold bubblewrap, asserts": lambda: command(*jail, python, "-I", "-S", "/work/check.py", cwd=folder),
            "cold pytest, no isolation": lambda: command(sys.executable, "-m", "pytest", "-q", cwd=folder),
        }
        totals = {name: [0, 0.0] for name in ways}
        for round_ in range(6):
            for name, way in ways.items():
                done, spent = await measure(way, options.seconds / 5 if round_ else 0.2, options.workers)
                if round_:  # the first round warms caches
                    totals[name][0] += done
                    totals[name][1] += spent
        await sandbox.aclose()
    table = Table("way", "grades", "grades a second", "ms a grade", "verl_ext is faster by")
    best = totals["verl_ext sandbox"][0] / totals["verl_ext sandbox"][1]
    for name, (done, spent) in totals.items():
        rate = done / spent
        table.add_row(name, str(done), f"{rate:.1f}", f"{1000 * options.workers / rate:.1f}", f"{best / rate:.1f} x")
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())
