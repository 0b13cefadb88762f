"""The sandbox under load: waiting, CPU and memory a grade, over HTTP, and beside code that burns its limits.

    python tests/bench/bench_sandbox_load.py [--grades 600] [--fusion URL]

One pool of two workers grades the solution of ``bench_sandbox.py``. Latency is what one caller waits when so many wait
at a time; an arrival waits its turn, so it grows with the queue while the rate stays. CPU and memory are those of the
pool's processes, the trusted side apart. ``serve`` is ``verl-ext sandbox serve`` asked over HTTP to run the same checks
as one program; ``--fusion`` names a SandboxFusion server's ``run_code`` to do so too. The last part grades the solution
while other callers keep submitting a program that never ends: a round of waiting is then as long as the limit allows.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median, quantiles

import httpx
import psutil
from bench_sandbox import ASSERTS, SOLUTION, TESTS
from rich.console import Console
from rich.table import Table

from verl_ext.sandbox import Limits, open_sandbox

WAITING = (1, 8, 64, 256)
WORKERS = 2
PORT = 8791


async def latencies(way: Callable[[], Awaitable[None]], waiting: int, grades: int) -> tuple[list[float], float]:
    """Seconds of each call with ``waiting`` callers at a time, and calls a second."""
    left, seen = [grades], []

    async def caller() -> None:
        while left[0] > 0:
            left[0] -= 1
            begin = time.perf_counter()
            await way()
            seen.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(waiting)))
    return seen, grades / (time.perf_counter() - begin)


def pool() -> tuple[float, float]:
    """CPU seconds spent so far below this process, by the living and those they have waited for; MiB held (PSS)."""
    cpu = mib = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
            cpu += times.user + times.system + times.children_user + times.children_system
            mib += process.memory_full_info().pss / 2**20
        except psutil.Error:
            continue
    return cpu, mib


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grades", type=int, default=600, help="for each row")
    parser.add_argument("--fusion", metavar="URL", help="run_code of a SandboxFusion server")
    options = parser.parse_args()
    sandbox = await open_sandbox(workers=WORKERS)

    async def ours() -> None:
        if not (await sandbox.grade({"solution.py": SOLUTION}, TESTS)).passed:
            raise SystemExit("failed: a grade of the right solution")

    table = Table("way", "waiting", "median ms", "99 % ms", "grades a second")

    async def measure(name: str, way: Callable[[], Awaitable[None]], waiting: int) -> None:
        seen, rate = await latencies(way, waiting, max(options.grades, 2 * waiting))
        table.add_row(
            name, str(waiting), f"{1e3 * median(seen):.1f}", f"{1e3 * quantiles(seen, n=100)[-1]:.1f}", f"{rate:.0f}"
        )

    await latencies(ours, WORKERS, 50)
    idle = pool()[1]
    for waiting in WAITING:
        await measure("verl_ext sandbox", ours, waiting)
    before, own, begin = pool()[0], time.process_time(), time.perf_counter()
    load = asyncio.create_task(latencies(ours, WORKERS, options.grades))
    held = []
    while not load.done():
        held.append(pool()[1])
        await asyncio.sleep(0.25)
    used, outside, spent = pool()[0] - before, time.process_time() - own, time.perf_counter() - begin
    await measure_servers(measure, options.fusion)
    await fairness(sandbox, measure)
    await sandbox.aclose()
    Console().print(table)
    ms = 1e3 / options.grades
    print(
        f"CPU: {ms * used:.1f} ms a grade in the pool, {ms * outside:.1f} ms outside, the measuring included; "
        f"{ms * spent * WORKERS:.1f} ms a grade and worker on the clock"
    )
    print(f"memory of the pool: {idle:.0f} MiB idle, at most {max(held):.0f} MiB with {WORKERS} grades at a time")


async def measure_servers(measure: Callable[..., Awaitable[None]], fusion: str | None) -> None:
    """The same checks as one program, over HTTP."""
    argv = [sys.executable, "-m", "verl_ext.cli", "sandbox", "serve", "--port", str(PORT), "--workers", str(WORKERS)]
    server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=64)) as client:
            for _ in range(600):
                try:
                    await client.get(f"http://127.0.0.1:{PORT}/v1/ping")
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.1)
            urls = {"serve over HTTP": f"http://127.0.0.1:{PORT}/run_code"} | (
                {"SandboxFusion": fusion} if fusion else {}
            )
            for name, url in urls.items():

                async def ask(url: str = url) -> None:
                    answer = await client.post(url, json={"code": ASSERTS, "language": "python"})
                    if answer.json()["status"] != "Success":
                        raise SystemExit(f"failed: {answer.text}")

                await latencies(ask, WORKERS, 20)
                for waiting in (1, 8, 64):
                    await measure(name, ask, waiting)
    finally:
        server.terminate()
        server.wait(30)


async def fairness(sandbox, measure: Callable[..., Awaitable[None]]) -> None:
    """Grades of the solution while as many callers as workers keep submitting a program that never ends."""
    limits = Limits(cpu_seconds=0.2, call_seconds=1.0)
    burning = True

    async def burn() -> None:
        while burning:
            verdict = await sandbox.grade({"solution.py": "def clamp(*_):\n    while True: pass"}, TESTS, limits)
            if verdict.passed:
                raise SystemExit("failed: a program that never ends has passed")

    async def honest() -> None:
        if not (await sandbox.grade({"solution.py": SOLUTION}, TESTS)).passed:
            raise SystemExit("failed: the right solution, beside one that never ends")

    burners = [asyncio.create_task(burn()) for _ in range(WORKERS)]
    await measure(f"beside {WORKERS} that never end", honest, 8)
    burning = False
    await asyncio.gather(*burners)


if __name__ == "__main__":
    asyncio.run(main())
