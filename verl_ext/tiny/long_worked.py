"""Worked repairs in the form of a long task: tests, the file whose function fails, the repair, ``submit``.

The failing call is drawn and its result left out: knowing it would need a sandbox, and its file is what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from verl_ext.gym.lengthen import FILES
from verl_ext.gym.program import Program
from verl_ext.gym.prompts import numbered
from verl_ext.gym.tools_ops import FAILURE_CHARS
from verl_ext.gym.validate import PUBLIC
from verl_ext.sandbox.oracle import describe
from verl_ext.tiny.tokenizer import call_text
from verl_ext.tiny.worked import Conversation, Repair
from verl_ext.types import digest


def long_repair(pool: Sequence[Program], seed: int) -> Callable[[Repair], Conversation]:
    """Writes a repair as a conversation of four calls; file names around it are those of ``pool``."""
    names = [program.name for program in pool]

    def written(repair: Repair) -> Conversation:
        own = repair.program.name
        rng = Random(f"{seed}/long/{own}/{digest({'': repair.buggy})}")
        others = [name for name in rng.sample(names, min(max(FILES), len(names))) if name != own]
        files = sorted([own, *others[: rng.choice(FILES) - 1]])
        number = files.index(own) + 1
        failing = f"file {number}: {describe(repair.program.inputs(rng))[:FAILURE_CHARS]}"
        return (
            {"role": "user", "content": numbered("\n".join(f"{name}.py" for name in files))},
            {"role": "assistant", "content": call_text("run_tests")},
            {"role": "tool", "content": f"{rng.randrange(PUBLIC)}/{PUBLIC} passed\n{failing}"},
            {"role": "assistant", "content": call_text("view", {"file": number})},
            {"role": "tool", "content": numbered(repair.buggy)},
            {"role": "assistant", "content": call_text("edit", {"line": repair.line, "op": repair.op})},
            {"role": "tool", "content": repair.answer},
            {"role": "assistant", "content": call_text("submit")},
        )

    return written
