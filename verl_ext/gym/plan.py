"""Choosing the bugs of a program, before anything is run.

Reinforcement learning only learns from tasks that are sometimes solved, and TinyAgent's menu repairs some bugs in one
edit and others hardly ever. So a bug that one edit repairs is preferred; a few others are kept, because a
gym in which every bug has a twin in the menu would flatter the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from verl_ext.gym.operators import Mutant, mutants, repair_edits
from verl_ext.gym.splits import HELDOUT_OPERATORS, TRAINED_OPERATORS, Source

PER_PROGRAM = {"train": 3, "val": 2, "heldout_functions": 2, "heldout_types": 2}
"""Bugs tried in a program. Fewer outside train: what is measured there should rest on many functions."""
_LOOKED_AT = 12  # mutants of one operator whose repair is looked for
_WEIGHTS = {
    "boolean_swap": 4.0,
    "swapped_arguments": 4.0,
    "missing_negation": 2.0,
    "comparison_strictness": 1.5,
    "early_return": 0.6,
    "missing_base_case": 0.3,
}
"""Above 1 for what few programs offer, below for what nearly all of them do."""
_HARD_SHARE = {"train": 0.07, "val": 0.07, "heldout_functions": 0.07, "heldout_types": 0.25}
_HARD_OPERATOR = 0.2  # chance to keep an operator that has no one-edit repair in this program


@dataclass(frozen=True)
class Wish:
    """A bug to try: the mutant, the split it is meant for, and the one menu edit that repairs it, if there is one."""

    mutant: Mutant
    split: str
    repair: tuple[int, str] | None


def wishes(source: Source, seed: int) -> list[Wish]:
    """Bugs to try in a program, each of another operator, the same for the same seed."""
    rng = Random(f"{seed}/bugs/{source.program.name}")
    heldout = source.split == "heldout_types"
    operators = HELDOUT_OPERATORS if heldout else TRAINED_OPERATORS
    count = PER_PROGRAM[source.split]
    found: list[Wish] = []
    for operator in _weighted_order(rng, operators):
        split = "val" if len(found) == count else source.split
        wish = _wish(rng, source.program.source, operator, split)
        if wish is not None:
            found.append(wish)
        if len(found) == count + source.also_val:
            break
    return found


def _weighted_order(rng: Random, operators: Sequence[str]) -> list[str]:
    """A random order in which heavier operators tend to come first (Efraimidis and Spirakis, 2006)."""
    return sorted(operators, key=lambda o: rng.random() ** (1 / _WEIGHTS.get(o, 1.0)), reverse=True)


def _wish(rng: Random, gold: str, operator: str, split: str) -> Wish | None:
    found = mutants(gold, operator)
    rng.shuffle(found)
    hard = rng.random() < _HARD_SHARE[split]
    spare: Wish | None = None
    for mutant in found[:_LOOKED_AT]:
        repair = next(iter(repair_edits(mutant.source, gold)), None)
        wish = Wish(mutant, split, repair)
        if (repair is None) == hard:
            return wish
        spare = spare or wish
    if spare is not None and spare.repair is None and split != "heldout_types" and rng.random() > _HARD_OPERATOR:
        return None
    return spare
