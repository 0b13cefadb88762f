"""Hand-written programs, one module for each family."""

from verl_ext.gym.catalogue import (
    containers,
    dates_money,
    graphs,
    intervals,
    matrices,
    numeric,
    parsing,
    searching,
    sequences,
    sets_dicts,
    sorting,
    state_machines,
    strings,
)
from verl_ext.gym.program import Program

_FAMILIES = (
    numeric,
    strings,
    sequences,
    searching,
    sorting,
    graphs,
    parsing,
    dates_money,
    state_machines,
    containers,
    matrices,
    sets_dicts,
    intervals,
)

PROGRAMS: tuple[Program, ...] = tuple(program for family in _FAMILIES for program in family.PROGRAMS)
"""Every hand-written program, in a fixed order."""
