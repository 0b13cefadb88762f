"""Long tasks: a task of one file put among correct files of other functions, so that reading all of it is dear.

The files around it are the repaired sources of other tasks of its split, so a split stays as disjoint from the others
as it was. None is of the same template: a correct twin of the buggy function would show its repair.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from verl_ext.types import BadInput, Task

FILES = (3, 4)
"""Files of a long task, one drawn for each."""


def lengthen(tasks: Sequence[Task], seed: int) -> list[Task]:
    """Each of ``tasks``, which are of one split, as a task of several files ``<function>.py``; the same for a seed.

    Which place the buggy file takes in the sorted list is drawn first, then the files around it.

    Raises:
        BadInput: The split has too few functions.
    """
    known = {task.provenance["function"]: task for task in tasks}
    return [_among(task, known, Random(f"{seed}/long/{task.task_id}")) for task in tasks]


def _among(task: Task, known: Mapping[str, Task], rng: Random) -> Task:
    own, template = task.provenance["function"], task.provenance["template"]
    others = sorted(
        name
        for name, other in known.items()
        if name != own and not (template and other.provenance["template"] == template)
    )
    count = rng.choice(FILES)
    if len(others) < count - 1:
        raise BadInput(
            f"--long: split {task.split} has {len(others)} other functions to put {own} among, and needs {count - 1}; "
            "ask for more tasks of it"
        )
    before, after = [name for name in others if name < own], [name for name in others if name > own]
    place = rng.randrange(count)
    place = min(max(place, count - 1 - len(after)), len(before))
    chosen = sorted([*rng.sample(before, place), own, *rng.sample(after, count - 1 - place)])
    (buggy,), (gold,) = task.sources.values(), task.gold.values()
    golds = {f"{_module(name)}.py": next(iter(known[name].gold.values())) for name in chosen}
    path, module = f"{_module(own)}.py", _module(own)
    return replace(
        task,
        task_id=f"{task.task_id}/{place + 1}of{count}",
        sources={**golds, path: buggy},
        editable=tuple(golds),
        gold={path: gold},
        public=replace(task.public, module=module),
        hidden=replace(task.hidden, module=module),
        provenance={**task.provenance, "file": place + 1, "files": count},
    )


def _module(function: str) -> str:
    """Its module's name; the standard library's are its own, where code runs."""
    return f"{function}_" if function in sys.stdlib_module_names else function
