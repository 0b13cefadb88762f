"""Which program and which bug operator goes into which split, and the proof that no text stands in two.

==================  =====================================================  ==================
split               functions                                              bug operators
==================  =====================================================  ==================
train               most of the trained templates' and hand-written ones   trained
val                 trained functions (another operator) and relatives     trained
heldout_functions   templates and hand-written programs of their own       trained
heldout_types       functions of their own, of trained templates           held out
==================  =====================================================  ==================

A *relative* is another function of a trained template. Assignment goes by position in the catalogue and the generator's
stream, never by chance, so that a larger build extends a smaller one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from verl_ext.gym.catalogue import PROGRAMS
from verl_ext.gym.generator import TEMPLATES, generate_many
from verl_ext.gym.operators import OPERATORS
from verl_ext.gym.program import Program
from verl_ext.types import Task

SPLITS: tuple[str, ...] = ("train", "val", "heldout_functions", "heldout_types")
HELDOUT_OPERATORS: tuple[str, ...] = ("wrong_slice", "wrong_default", "missing_base_case", "swallowed_exception")
"""Never trained on. ``plus_one``, ``minus_one`` and ``constant`` repair most slices and defaults; nothing in the menu
repairs the other two."""
TRAINED_OPERATORS: tuple[str, ...] = tuple(o for o in OPERATORS if o not in HELDOUT_OPERATORS)
HELDOUT_TEMPLATES: tuple[str, ...] = TEMPLATES[2::5]
OPS_LINES = 24
"""Longest source, in lines, that fits TinyAgent's prompt."""


@dataclass(frozen=True)
class Source:
    """A program with the split that its tasks go to; ``also_val``: one more operator's task goes to val."""

    program: Program
    split: str
    also_val: bool = False


def sources(seed: int, sizes: Mapping[str, int], tools: str = "ops") -> dict[str, list[Source]]:
    """Programs of each split in the order in which they are used; more than the sizes (tasks) need.

    Args:
        seed: Of the generator.
        sizes: Tasks wanted in each split.
        tools: All but ``code`` leave out programs of more than :data:`OPS_LINES` lines.

    Raises:
        BadInput: The generator has fewer programs than such sizes need.
    """
    found: dict[str, list[Source]] = {split: [] for split in SPLITS}
    for index, program in enumerate(PROGRAMS):
        split = {0: "heldout_functions", 1: "heldout_types"}.get(index % 5, "train")
        _put(found, program, split, tools)
    others = sum(sizes.get(split, 0) for split in SPLITS[1:])
    index = 0
    for program in generate_many(seed, 60 + sizes.get("train", 0) + 5 * others):
        if program.template in HELDOUT_TEMPLATES:
            _put(found, program, "heldout_functions", tools)
            continue
        split = {0: "val", 1: "heldout_types", 2: "heldout_types", 3: "heldout_types"}.get(index % 10, "train")
        _put(found, program, split, tools)
        index += 1
    return found


def _put(found: dict[str, list[Source]], program: Program, split: str, tools: str) -> None:
    if tools != "code" and program.source.count("\n") > OPS_LINES:
        return
    if split == "heldout_types" and not _has_ground(program.source):
        return
    rows = found[split]
    rows.append(Source(program, split, also_val=split == "train" and len(rows) % 8 == 0))


def _has_ground(source: str) -> bool:
    """A held-out operator may find a slice, a default or an exception to break; sorting out the rest here is cheap."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Slice | ast.Raise) or (isinstance(node, ast.arguments) and node.defaults):
            return True
        if isinstance(node, ast.Attribute) and node.attr in ("get", "pop", "setdefault"):
            return True
    return False


def problems(tasks: Iterable[Task]) -> list[str]:
    """One line for everything that breaks the table above; an empty list is the proof.

    A text, buggy or repaired, may stand in one split only; repaired texts of train may also be those of val. Files
    beside the buggy one are repaired sources of their split.
    """
    found: list[str] = []
    buggy: dict[str, str] = {}
    families = {"train": "train+val", "val": "train+val"}
    owners: dict[str, tuple[str, str]] = {}
    trained_pairs, trained_templates = set(), set()
    tasks = list(tasks)
    for task in tasks:
        if task.split not in SPLITS:
            found.append(f"{task.task_id}: unknown split {task.split!r}")
        if (task.bug_type in HELDOUT_OPERATORS) != (task.split == "heldout_types"):
            found.append(f"{task.task_id}: bug type {task.bug_type} in split {task.split}")
        for path in task.gold:
            if (first := buggy.setdefault(task.sources[path], task.task_id)) != task.task_id:
                found.append(f"{task.task_id}: the same buggy source as {first}")
        family = families.get(task.split, task.split)
        for text in task.gold.values():
            owner = owners.setdefault(text, (family, task.task_id))
            if owner[0] != family:
                found.append(f"{task.task_id}: its repaired source stands in {owner[0]} too ({owner[1]})")
        if task.split == "train":
            trained_pairs.add((task.provenance.get("function"), task.bug_type))
            trained_templates.add(task.provenance.get("template"))
    for task in tasks:
        for path in task.gold:
            if owner := owners.get(task.sources[path]):
                found.append(f"{task.task_id}: its buggy source is the repaired source of {owner[1]}")
        for path in set(task.editable).difference(task.gold):
            text = task.sources[path]
            if first := buggy.get(text):
                found.append(f"{task.task_id}: {path} is the buggy source of {first}")
            elif text not in owners or owners[text][0] != families.get(task.split, task.split):
                found.append(f"{task.task_id}: {path} is no repaired source of its split")
        function, template = task.provenance.get("function"), task.provenance.get("template")
        if task.split == "val" and (function, task.bug_type) in trained_pairs:
            found.append(f"{task.task_id}: {function} with {task.bug_type} is trained on")
        if task.split == "heldout_functions" and template and template in trained_templates:
            found.append(f"{task.task_id}: template {template} is trained on")
    return found
