"""Under load: who came first is served first, so code that burns its limits costs others their turn and no more."""

import asyncio

from verl_ext.sandbox import Limits, open_sandbox
from verl_ext.types import Case, InfrastructureError, Tests

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


async def test_a_caller_that_asks_again_at_once_does_not_overtake_those_who_wait():
    """It took the free worker before the one that had been woken for it could, for ever."""
    sandbox = await open_sandbox(workers=1)
    busy, order = True, []

    async def again_and_again() -> None:
        while busy:
            await sandbox.grade(RIGHT, TESTS)
            order.append("again")

    async def once(number: int) -> None:
        assert (await sandbox.grade(RIGHT, TESTS)).passed
        order.append(number)

    try:
        greedy = asyncio.create_task(again_and_again())
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await asyncio.gather(*(once(number) for number in range(5)))
        busy = False
        await greedy
    finally:
        await sandbox.aclose()
    assert [entry for entry in order if entry != "again"] == [0, 1, 2, 3, 4]
    assert order.index(4) <= 6


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


async def test_grades_that_wait_when_the_sandbox_is_closed_are_infrastructure():
    sandbox = await open_sandbox(workers=1)
    grades = [asyncio.create_task(sandbox.grade(ENDLESS, TESTS, SHORT)) for _ in range(3)]
    await asyncio.sleep(0.05)
    await sandbox.aclose()
    found = await asyncio.gather(*grades, return_exceptions=True)
    assert all(isinstance(error, InfrastructureError) for error in found[1:]), found
