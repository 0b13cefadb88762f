"""Hand-written programs, one module for each family."""

from verl_ext.gym.catalogue import numeric
from verl_ext.gym.program import Program

PROGRAMS: tuple[Program, ...] = (*numeric.PROGRAMS,)
"""Every hand-written program, in a fixed order."""
