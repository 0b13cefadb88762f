"""The turn table: what every estimator is a function of, checked and put in order once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from verl_ext.credit.segments import codes_of, discounted_sums, pair_codes
from verl_ext.types import BadInput


@dataclass(frozen=True, eq=False)
class TurnTable:
    """Turns of sessions of groups; build it with :meth:`from_columns`.

    Columns ending in ``_T`` are sorted: sessions one after the other, turns in order. :meth:`in_order_given` takes a
    sorted column back to the caller's order.

    Attributes:
        groups: Group ids (G,), in no particular order.
        sessions: (group id, session id) of each session (S,).
        group_S: Number of each session's group.
        length_S: Turns of each session, at least 1.
        trainable_S: Whether the session counts; one that does not is left out of every statistic, with advantage 0.
        session_T: Number of each turn's session.
        anchor_T: Number of each turn's anchor; equal text in different groups has different numbers.
        anchors: How many such numbers there are.
        reward_T: Reward after the turn.
        potential_T: Potential of the state that the turn started from, or None.
        valid_T: Whether the turn's action was valid, or None.
        sorted_row: Place in the sorted columns of each row as given.
    """

    groups: list[Hashable]
    sessions: list[tuple[Hashable, Hashable]]
    group_S: np.ndarray
    length_S: np.ndarray
    trainable_S: np.ndarray
    session_T: np.ndarray
    anchor_T: np.ndarray
    anchors: int
    reward_T: np.ndarray
    potential_T: np.ndarray | None
    valid_T: np.ndarray | None
    sorted_row: np.ndarray

    @classmethod
    def from_columns(
        cls,
        group: Sequence[Hashable],
        session: Sequence[Hashable],
        turn: Sequence[int],
        anchor: Sequence[Hashable],
        reward: Sequence[float],
        potential: Sequence[float] | None = None,
        valid: Sequence[bool] | None = None,
        trainable: Sequence[bool] | None = None,
    ) -> TurnTable:
        """A table from columns of equal length, one entry a turn, in any order.

        Args:
            group: Group ids, text or integers.
            session: Session ids, text or integers; unique within their group only.
            turn: Turn numbers, from 0 without gaps in each session.
            anchor: What state the turn acts on, as text (or integers); compared by equality, within a group only.
            reward: Reward after the turn.
            potential: Potential of the state that the turn starts from. That of the state after a session's last turn
                is 0, whether the session ended by itself or was cut off.
            valid: False where the action was invalid; estimators subtract ``invalid_penalty`` there.
            trainable: The same for all turns of a session. False: an infrastructure failure; the session counts
                nowhere and its turns get 0. Default: all count.

        Raises:
            BadInput: Columns of unequal length; missing, infinite or NaN entries; turns twice or missing; a session
                with trainable and other turns. The line names session and turn.
        """
        columns = {"group": group, "session": session, "turn": turn, "anchor": anchor, "reward": reward}
        columns |= {"potential": potential, "valid": valid, "trainable": trainable}
        lengths = {name: len(column) for name, column in columns.items() if column is not None}
        for name, column in columns.items():
            if column is None and name in ("group", "session", "turn", "anchor", "reward"):
                raise BadInput(f"turn table: no column {name}")
            if column is not None and lengths[name] != lengths["group"]:
                raise BadInput(f"turn table: {name} has {lengths[name]} entries, group has {lengths['group']}")
        rows = _Rows()
        rows.group = _keys("group", group, rows)
        rows.session = _keys("session", session, rows)
        rows.turn = turns = _integers("turn", turn, rows)
        group_codes, groups = codes_of(rows.group)
        session_T, n_sessions = pair_codes(group_codes, codes_of(rows.session)[0])
        length_S = np.bincount(session_T, minlength=n_sessions)
        start_S = np.cumsum(length_S) - length_S
        inside = (turns >= 0) & (turns < length_S[session_T])
        sorted_row = start_S[session_T] + np.where(inside, turns, 0)
        if not inside.all() or (np.bincount(sorted_row, minlength=len(turns)) > 1).any():
            _explain_turns(session_T, turns, rows)

        given = np.empty(len(turns), dtype=np.int64)
        given[sorted_row] = np.arange(len(turns))
        first_row_S = given[start_S]
        group_S = group_codes[first_row_S]
        anchor_T, anchors = pair_codes(group_codes, codes_of(_keys("anchor", anchor, rows))[0])
        trainable_S = np.ones(n_sessions, dtype=bool)
        if trainable is not None:
            votes = np.bincount(session_T, weights=_flags("trainable", trainable, rows), minlength=n_sessions)
            if ((votes > 0) & (votes < length_S)).any():
                where = rows.name(first_row_S[np.flatnonzero((votes > 0) & (votes < length_S))[0]])
                raise BadInput(f"turn table: {where} has trainable and other turns; they must agree")
            trainable_S = votes > 0
        return cls(
            groups=groups,
            sessions=rows.keys(first_row_S),
            group_S=group_S,
            length_S=length_S,
            trainable_S=trainable_S,
            session_T=session_T[given],
            anchor_T=anchor_T[given],
            anchors=anchors,
            reward_T=_numbers("reward", reward, rows)[given],
            potential_T=None if potential is None else _numbers("potential", potential, rows)[given],
            valid_T=None if valid is None else _flags("valid", valid, rows)[given],
            sorted_row=sorted_row,
        )

    def in_order_given(self, column_T: np.ndarray) -> np.ndarray:
        """A sorted column, in the order of the rows that the table was built from."""
        return column_T[self.sorted_row]

    @cached_property
    def group_T(self) -> np.ndarray:
        """Number of each turn's group."""
        return self.group_S[self.session_T]

    @cached_property
    def trainable_T(self) -> np.ndarray:
        """Whether each turn's session counts."""
        return self.trainable_S[self.session_T]

    @cached_property
    def comparable_G(self) -> np.ndarray:
        """Whether each group has two trainable sessions, so that there is something to compare."""
        return np.bincount(self.group_S, weights=self.trainable_S, minlength=len(self.groups)) > 1

    @cached_property
    def counts_S(self) -> np.ndarray:
        """Whether each session is trainable and has another of its group to be compared with."""
        return self.trainable_S & self.comparable_G[self.group_S]

    @cached_property
    def return_S(self) -> np.ndarray:
        """Undiscounted sum of each session's rewards, penalties not included."""
        return self.sum_by_session(self.reward_T)

    def sum_by_session(self, column_T: np.ndarray) -> np.ndarray:
        """Sum of a sorted column over each session (S,)."""
        return np.bincount(self.session_T, weights=column_T, minlength=len(self.sessions))

    def penalty(self, invalid_penalty: float) -> np.ndarray:
        """What each turn (T,) loses for being invalid."""
        if invalid_penalty == 0:
            return np.zeros_like(self.reward_T)
        if self.valid_T is None:
            raise BadInput(f"credit invalid_penalty={invalid_penalty!r}: the turn table has no column valid")
        return invalid_penalty * ~self.valid_T

    def returns_to_go(self, reward_T: np.ndarray, discount: float) -> np.ndarray:
        """Discounted sum of each turn's reward and those after it in its session (T,)."""
        return discounted_sums(reward_T, discount, self.length_S)


class _Rows:
    """Names rows in errors by what is known of them so far."""

    group: Sequence | None = None
    session: Sequence | None = None
    turn: np.ndarray | None = None

    def keys(self, rows: np.ndarray) -> list[tuple[Hashable, Hashable]]:
        """Group and session of some rows, as Python values."""
        columns = (
            ids[rows].tolist() if isinstance(ids, np.ndarray) else [ids[row] for row in rows.tolist()]
            for ids in (self.group, self.session)
        )
        return list(zip(*columns, strict=True))

    def name(self, row: int) -> str:
        ((group, session),) = self.keys(np.array([row]))
        return f"session {session!r} of group {group!r}"

    def __call__(self, row: int) -> str:
        if self.session is None:
            return f"row {row}" if self.group is None else f"row {row} (group {self.group[row]!r})"
        return f"{self.name(row)}, row {row}" if self.turn is None else f"{self.name(row)}, turn {self.turn[row]}"


def _as_list(column: Any) -> list:
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _is_array(column: Any, kinds: str) -> bool:
    return isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in kinds


def _keys(name: str, column: Any, rows: _Rows) -> list | np.ndarray:
    """Text or integers: an array where all are 64-bit integers, else a list."""
    if (
        isinstance(column, np.ndarray)
        and column.ndim == 1
        and np.can_cast(column.dtype, np.int64)
        and column.dtype != bool
    ):
        return column.astype(np.int64)
    values = _as_list(column)
    bad = {kind for kind in set(map(type, values)) if kind is bool or not issubclass(kind, str | int | np.integer)}
    if bad:
        row = next(row for row, value in enumerate(values) if type(value) in bad)
        raise BadInput(f"turn table: {rows(row)}: {name} is {values[row]!r}; it must be text or an integer")
    return values


def _integers(name: str, column: Any, rows: _Rows) -> np.ndarray:
    if _is_array(column, "iu"):
        return column.astype(np.int64)
    values = _as_list(column)
    for row, value in enumerate(values):
        whole = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
        if not whole or isinstance(value, bool):
            raise BadInput(f"turn table: {rows(row)}: {name} is {value!r}; it must be an integer")
    return np.array(values, dtype=np.int64)


def _numbers(name: str, column: Any, rows: _Rows) -> np.ndarray:
    values = column
    if not _is_array(column, "fiub"):
        kinds = float | int | np.number
        values = np.array([value if isinstance(value, kinds) else np.nan for value in _as_list(column)])
    values = values.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        value = _as_list(column)[bad[0]]
        raise BadInput(f"turn table: {rows(bad[0])}: {name} is {value!r}; it must be a finite number")
    return values


def _flags(name: str, column: Any, rows: _Rows) -> np.ndarray:
    if _is_array(column, "b"):
        return column
    values = _as_list(column)
    for row, value in enumerate(values):
        if not isinstance(value, bool | np.bool_ | int | np.integer | float) or value not in (0, 1):
            raise BadInput(f"turn table: {rows(row)}: {name} is {value!r}; it must be true or false")
    return np.array(values, dtype=bool)


def _explain_turns(session_T: np.ndarray, turns: np.ndarray, rows: _Rows) -> NoReturn:
    """Name the first turn, by session, that is there twice or is missing."""
    order = np.lexsort((turns, session_T))
    session_T, turns = session_T[order], turns[order]
    new = np.r_[True, session_T[1:] != session_T[:-1]]
    before = np.where(new, -1, np.r_[-1, turns[:-1]])
    at = int(np.flatnonzero(turns != before + 1)[0])
    where = rows(order[at])
    if turns[at] < 0:
        raise BadInput(f"turn table: {where}: turns count from 0")
    if turns[at] == before[at]:
        raise BadInput(f"turn table: {where} is there twice")
    raise BadInput(f"turn table: {where} comes without turn {before[at] + 1}; turns count from 0 without gaps")
