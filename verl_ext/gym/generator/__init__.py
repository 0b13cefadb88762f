"""Synthetic programs: small functions composed from idioms, whose names state their intent in full.

Each template draws identifiers, constants, predicates, loop styles and the order of independent statements, and names
the function after what was drawn, so that a bug can be seen from name and code alone. Everything is a function of the
random generator that is passed in.
"""

from __future__ import annotations

import random

from verl_ext.gym.generator import (  # noqa: F401  (importing registers the templates)
    counting,
    extrema,
    folds,
    limits,
    matrices,
    neighbours,
    pointers,
    ranges,
    recursion,
    searches,
    states,
    texts,
    windows,
)
from verl_ext.gym.generator.core import REGISTER, make
from verl_ext.gym.program import Program
from verl_ext.types import BadInput

__all__ = ["TEMPLATES", "generate", "generate_many"]

TEMPLATES: tuple[str, ...] = tuple(REGISTER)
_PATIENCE = 60  # draws in a row without a new name after which a template counts as exhausted


def generate(rng: random.Random) -> Program:
    """Draws one program from a template chosen uniformly."""
    return make(rng.choice(TEMPLATES), rng)


def generate_many(seed: int, count: int) -> list[Program]:
    """Draws ``count`` programs with unique names and unique sources, the same for the same seed.

    Templates are drawn uniformly until one yields nothing new; the rest then share what is left. A shorter list is a
    prefix of a longer one with the same seed.

    Raises:
        BadInput: There are not that many distinct programs.
    """
    rng = random.Random(seed)
    left = dict.fromkeys(TEMPLATES, _PATIENCE)
    seen: set[str] = set()
    programs: list[Program] = []
    while len(programs) < count:
        if not left:
            raise BadInput(f"count={count} is more than the generator has; ask for at most {len(programs)}")
        template = rng.choice(tuple(left))
        program = make(template, rng)
        if program.name in seen or program.source in seen:
            left[template] -= 1
            if not left[template]:
                del left[template]
            continue
        left[template] = _PATIENCE
        seen.update((program.name, program.source))
        programs.append(program)
    return programs
