"""Worked repairs: a program with a bug, the edit that mends it, and what the environment answers.

Before TinyAgent learns to hold a session it has to see bugs at all, and that takes many more of them than the gym has
tasks. A bug whose repair is known needs no sandbox: the repaired source is the correct program, whose tests pass by
definition. So these conversations are written, not played, on generated programs that no evaluated task is made of.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from random import Random

from verl_ext.gym.plan import wishes
from verl_ext.gym.program import Program
from verl_ext.gym.prompts import numbered
from verl_ext.gym.splits import HELDOUT_TEMPLATES, Source
from verl_ext.gym.tools_ops import LINE_CHARS
from verl_ext.gym.validate import PUBLIC
from verl_ext.tiny.tokenizer import call_text
from verl_ext.types import Case, Task

Conversation = Sequence[dict[str, str]]
"""Messages as a chat template takes them."""


@dataclass(frozen=True)
class Repair:
    """A program, its buggy text, and the menu edit that turns that into the program."""

    program: Program
    buggy: str
    line: int
    op: str

    @property
    def answer(self) -> str:
        """What the environment answers to the edit."""
        repaired = self.program.source.split("\n")[self.line - 1][:LINE_CHARS]
        return f"{self.line}: {repaired}\nall {PUBLIC} passed"


PROGRAMS = 6000
"""Generated programs, before those of evaluated tasks are left out; up to three bugs each."""
_CHUNK = 32


def programs(tasks: Iterable[Task], seed: int, count: int = PROGRAMS) -> list[Program]:
    """Generated programs of which no validation or held-out task is made: neither template, name nor text."""
    from verl_ext.gym.generator import generate_many

    evaluated = [task for task in tasks if task.split != "train"]
    names = {task.provenance.get("function") for task in evaluated}
    texts = {text for task in evaluated for text in (*task.gold.values(), *task.sources.values())}
    # A stream of its own: the build's programs are mostly others.
    return [
        program
        for program in generate_many(seed + 1_000_003, count)
        if program.template not in HELDOUT_TEMPLATES and program.name not in names and program.source not in texts
    ]


def worked_repairs(
    pool: Sequence[Program],
    tasks: Iterable[Task],
    seed: int,
    report: Callable[[int], None] = lambda count: None,
    written: Callable[[Repair], Conversation] | None = None,
) -> list[Conversation]:
    """Conversations that end with the repair and ``submit``, in the order of ``pool``; deterministic by ``seed``.

    Args:
        pool: Programs to break; see :func:`programs`.
        tasks: The gym's. No buggy text of an evaluated one comes up.
        seed: Fixes which bugs are chosen.
        report: Told how many programs are done.
        written: The conversation of a repair; :func:`conversation` by default.
    """
    evaluated = {text for task in tasks if task.split != "train" for text in task.sources.values()}
    # A program's input generator is a closure, which cannot go to another process and is not needed there.
    jobs = [(replace(program, inputs=_no_inputs), seed) for program in pool]
    written = written or conversation
    found: list[Conversation] = []
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as workers:
        for done, (program, repaired) in enumerate(
            zip(pool, workers.map(_repaired, jobs, chunksize=_CHUNK), strict=True), 1
        ):
            found += [written(Repair(program, *one)) for one in repaired if one[0] not in evaluated]
            report(done)
    return found


def _no_inputs(rng: Random) -> Case:
    raise NotImplementedError


def _repaired(job: tuple[Program, int]) -> list[tuple[str, int, str]]:
    program, seed = job
    return [
        (wish.mutant.source, *wish.repair) for wish in wishes(Source(program, "train"), seed) if wish.repair is not None
    ]


def conversation(repair: Repair) -> Conversation:
    """Two calls on the one file of an ordinary task."""
    return (
        {"role": "user", "content": numbered(repair.buggy)},
        {"role": "assistant", "content": call_text("edit", {"line": repair.line, "op": repair.op})},
        {"role": "tool", "content": repair.answer},
        {"role": "assistant", "content": call_text("submit")},
    )
