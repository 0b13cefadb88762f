"""Ten thousand grades, every tenth an attack, in one pool: `make test-long`, or fewer with GRADES=2000 in front."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.attacks.suite import ATTACKS, SHAPES
from tests.attacks.test_attacks import LIMITS, PATIENT, descendants, host, left_over
from verl_ext.progress import bar
from verl_ext.sandbox import open_sandbox

GRADES = int(os.environ.get("GRADES", "10000"))
ROUND = 1000


def resident() -> int:
    """MiB held by this process and all below it."""
    pages = 0
    for pid in {os.getpid(), *descendants()}:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


@pytest.mark.long
async def test_ten_thousand_grades_leave_nothing():
    sandbox = await open_sandbox(workers=2)
    wrong: list[str] = []
    seen: list[tuple[tuple[int, int, int], int]] = []

    async def one(number: int, values: dict) -> None:
        if number % 10:
            shape = SHAPES[number % len(SHAPES)]
            if not (await sandbox.grade(shape.honest, shape.tests, PATIENT)).passed:
                wrong.append(f"{number}: honest {shape.name} failed")
        else:
            attack = ATTACKS[number // 10 % len(ATTACKS)]
            if (await sandbox.grade(attack.filled(**values), attack.shape.tests, LIMITS)).passed:
                wrong.append(f"{number}: {attack} passed")

    try:
        with host() as values, bar("grades", GRADES) as report:
            for begin in range(0, GRADES, ROUND):
                await asyncio.gather(*(one(number, values) for number in range(begin, min(begin + ROUND, GRADES))))
                seen.append((left_over(), resident()))
                report(min(begin + ROUND, GRADES), f"{seen[-1]}")
    finally:
        await sandbox.aclose()
    assert wrong == []
    assert {held for held, _ in seen[1:]} == {seen[0][0]}
    assert seen[-1][1] <= seen[0][1] + 50, f"MiB after each {ROUND} grades: {[mib for _, mib in seen]}"
