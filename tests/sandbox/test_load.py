"""Under load: who came first is served first, so code that burns its limits costs others their turn and no more."""

import asyncio

from verl_ext.sandbox import Limits, open_sandbox
from verl_ext.types import Case, Tests

TESTS = Tests(cases=(Case("f", (1,), expected=2),))
RIGHT = {"solution.py": "def f(x): return x + 1"}
ENDLESS = {"solution.py": "def f(x):\n    while True: pass"}
SHORT = Limits(cpu_seconds=0.1, call_seconds=2.0)


async def test_an_honest_grade_is_not_overtaken_by_code_that_never_ends():
    sandbox = await open_sandbox(workers=1)
    done: list[str] = []

    async def grade(name: str, sources: dict[str, str], passes: bool) -> None:
        verdict = await sandbox.grade(sources, TESTS, SHORT)
        assert verdict.passed == passes, name
        done.append(name)

    try:
        burners = [grade(f"burner {i}", ENDLESS, False) for i in range(3)]
        later = [grade(f"later burner {i}", ENDLESS, False) for i in range(3)]
        await asyncio.gather(*burners, grade("honest", RIGHT, True), *later)
    finally:
        await sandbox.aclose()
    assert done.index("honest") == 3 and len(done) == 7


async def test_honest_grades_go_on_while_every_worker_meets_code_that_never_ends():
    sandbox = await open_sandbox(workers=2)
    burning = True

    async def burn() -> int:
        count = 0
        while burning:
            assert not (await sandbox.grade(ENDLESS, TESTS, SHORT)).passed
            count += 1
        return count

    try:
        burners = [asyncio.create_task(burn()) for _ in range(6)]
        for _ in range(5):
            async with asyncio.timeout(30):
                assert (await sandbox.grade(RIGHT, TESTS)).passed
        burning = False
        burned = await asyncio.gather(*burners)
    finally:
        await sandbox.aclose()
    # One round of the queue an honest grade, not more: six burners before each.
    assert max(burned) <= 7
