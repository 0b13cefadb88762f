"""What a turn table and the estimators refuse, in one line that names the place."""

import subprocess
import sys

import numpy as np
import pytest

from verl_ext.credit import TurnTable, anchor_stats, gigpo, grpo, potential
from verl_ext.types import BadInput

GOOD = {
    "group": ["g", "g", "g", "h"],
    "session": ["s", "s", "t", "s"],
    "turn": [0, 1, 0, 0],
    "anchor": ["a", "b", "a", "a"],
    "reward": [0.0, 1.0, 0.0, 1.0],
}


def refused(**changes: object) -> str:
    with pytest.raises(BadInput) as error:
        TurnTable.from_columns(**{**GOOD, **changes})
    line = str(error.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize("missing", [None, float("nan"), float("inf"), -float("inf"), "one"])
@pytest.mark.parametrize("column", ["reward", "potential"])
def test_numbers_that_are_none_are_refused_with_the_turn_named(column, missing):
    line = refused(**{column: [0.0, missing, 0.0, 0.0]})
    assert line.startswith(f"turn table: session 's' of group 'g', turn 1: {column} is ")
    assert repr(missing) in line


def test_numbers_from_arrays_are_checked_too():
    assert "session 's' of group 'h', turn 0: reward is nan;" in refused(reward=np.array([0, 0, 0, np.nan]))


@pytest.mark.parametrize("missing", [None, 1.5, float("nan"), ("a",), True])
def test_anchors_and_ids_are_text_or_integers(missing):
    assert f"session 't' of group 'g', turn 0: anchor is {missing!r}" in refused(anchor=["a", "b", missing, "a"])
    assert f"row 3 (group 'h'): session is {missing!r}" in refused(session=["s", "s", "t", missing])
    assert f"row 0: group is {missing!r}" in refused(group=[missing, "g", "g", "h"])


@pytest.mark.parametrize("missing", [None, 0.5, float("nan"), "0"])
def test_turn_numbers_are_integers(missing):
    assert f"session 't' of group 'g', row 2: turn is {missing!r}" in refused(turn=[0, 1, missing, 0])


@pytest.mark.parametrize("column", ["valid", "trainable"])
@pytest.mark.parametrize("missing", [None, 2, float("nan"), "yes"])
def test_flags_are_true_or_false(column, missing):
    line = refused(**{column: [True, True, missing, True]})
    assert f"session 't' of group 'g', turn 0: {column} is {missing!r}" in line


def test_turns_twice_and_missing_turns_are_named():
    assert refused(turn=[0, 0, 0, 0]) == "turn table: session 's' of group 'g', turn 0 is there twice"
    assert "session 's' of group 'g', turn 2 comes without turn 1" in refused(turn=[0, 2, 0, 0])
    assert "session 's' of group 'h', turn 1 comes without turn 0" in refused(turn=[0, 1, 0, 1])
    assert "session 't' of group 'g', turn -1: turns count from 0" in refused(turn=[0, 1, -1, 0])


def test_one_fault_among_many_sessions_is_found():
    group = np.repeat(np.arange(50), 20)
    turn = np.tile(np.arange(10), 100)
    session = np.tile(np.repeat([7, 8], 10), 50)
    turn[733] = 9  # a second turn 9 of session 8 in group 36, and no turn 3
    with pytest.raises(BadInput, match="session 8 of group 36, turn 4 comes without turn 3"):
        TurnTable.from_columns(group, session, turn, turn, turn)


def test_columns_have_one_length():
    assert refused(anchor=["a"]) == "turn table: anchor has 1 entries, group has 4"
    assert refused(trainable=[True] * 5) == "turn table: trainable has 5 entries, group has 4"
    assert refused(reward=None) == "turn table: no column reward"


def test_columns_have_one_entry_a_turn():
    nested = np.zeros((4, 2))
    assert "session 's' of group 'g', turn 0: reward is [0.0, 0.0]" in refused(reward=nested)
    assert "session 's' of group 'g', turn 0: valid is [0.0, 0.0]" in refused(valid=nested)
    assert "session 's' of group 'g', row 0: turn is [0, 0]" in refused(turn=nested.astype(int))
    assert "session 's' of group 'g', turn 0: anchor is [0, 0]" in refused(anchor=nested.astype(int))
    assert "session 's' of group 'g', turn 1: reward is [1.0]" in refused(reward=[0.0, [1.0], 0.0, 0.0])


def test_a_session_is_trainable_as_a_whole():
    line = refused(trainable=[True, False, True, True])
    assert line == "turn table: session 's' of group 'g' has trainable and other turns; they must agree"
    TurnTable.from_columns(**GOOD, trainable=[False, False, True, True])


def test_columns_may_be_lists_arrays_or_numpy_scalars():
    wanted = gigpo(TurnTable.from_columns(**GOOD))[0].tolist()
    arrays = {name: np.array(column) for name, column in GOOD.items()}
    assert gigpo(TurnTable.from_columns(**arrays))[0].tolist() == wanted
    objects = {name: list(np.array(column)) for name, column in GOOD.items()}
    assert gigpo(TurnTable.from_columns(**objects, trainable=[1, 1, 1, 1]))[0].tolist() == wanted
    floats = GOOD | {"turn": [0.0, 1.0, 0.0, 0.0], "reward": [0, 1, 0, 1]}
    assert gigpo(TurnTable.from_columns(**floats))[0].tolist() == wanted


def test_the_callers_columns_are_left_alone():
    reward = np.array(GOOD["reward"])
    table = TurnTable.from_columns(**{**GOOD, "reward": reward}, valid=[False] * 4, potential=[0.5] * 4)
    gigpo(table, invalid_penalty=1.0, shaping_weight=1.0)
    potential(table, invalid_penalty=1.0)
    assert reward.tolist() == GOOD["reward"]


TABLE = TurnTable.from_columns(**GOOD)


@pytest.mark.parametrize("value", [0, 0.0, -0.1, 1.01, float("nan"), float("inf"), "0.9", None, True])
def test_gamma_is_in_0_to_1(value):
    for estimate in (gigpo, potential):
        with pytest.raises(BadInput) as error:
            estimate(TABLE, gamma=value)
        assert str(error.value) == f"credit gamma={value!r}: must be in (0, 1]"


@pytest.mark.parametrize(
    ("estimate", "settings", "line"),
    [
        (gigpo, {"step_weight": -1}, "credit step_weight=-1: must be a finite number, 0 or more"),
        (gigpo, {"step_weight": float("inf")}, "credit step_weight=inf: must be a finite number, 0 or more"),
        (gigpo, {"invalid_penalty": -0.1}, "credit invalid_penalty=-0.1: must be a finite number, 0 or more"),
        (gigpo, {"shaping_weight": -0.1}, "credit shaping_weight=-0.1: must be a finite number, 0 or more"),
        (gigpo, {"std_floor": 0}, "credit std_floor=0: must be a finite number above 0"),
        (gigpo, {"episode_norm": "std"}, "credit episode_norm='std': must be mean or mean_std or leave_one_out"),
        (gigpo, {"step_norm": "leave_one_out"}, "credit step_norm='leave_one_out': must be mean or mean_std"),
        (gigpo, {"visits": "last"}, "credit visits='last': must be every or first"),
        (gigpo, {"compat": "paper"}, "credit compat='paper': must be None or verl_agent"),
        (gigpo, {"visits": ["every"]}, "credit visits=['every']: must be every or first"),
        (grpo, {"episode_norm": "leave_one_out"}, "credit episode_norm='leave_one_out': must be mean_std or mean"),
        (potential, {"lam": 1.5}, "credit lam=1.5: must be in [0, 1]"),
        (potential, {"lam": -0.5}, "credit lam=-0.5: must be in [0, 1]"),
        (potential, {"baseline": "mean"}, "credit baseline='mean': must be leave_one_out or group_mean"),
        (potential, {"invalid_penalty": "1"}, "credit invalid_penalty='1': must be a finite number, 0 or more"),
        (
            gigpo,
            {"shaping_weight": 0.5},
            "credit shaping_weight=0.5: the turn table has no column potential",
        ),
        (gigpo, {"invalid_penalty": 0.5}, "credit invalid_penalty=0.5: the turn table has no column valid"),
        (potential, {"invalid_penalty": 0.5}, "credit invalid_penalty=0.5: the turn table has no column valid"),
        (
            gigpo,
            {"compat": "verl_agent", "visits": "first"},
            "credit visits='first': compat=verl_agent has every only",
        ),
        (
            gigpo,
            {"compat": "verl_agent", "episode_norm": "leave_one_out"},
            "credit episode_norm='leave_one_out', step_norm='mean': "
            "compat=verl_agent has one norm for both terms, mean or mean_std",
        ),
        (
            gigpo,
            {"compat": "verl_agent", "shaping_weight": 0.1},
            "credit shaping_weight=0.1: compat=verl_agent has no shaping; leave it at 0",
        ),
    ],
)
def test_settings_out_of_range_are_refused_in_one_line(estimate, settings, line):
    with pytest.raises(BadInput) as error:
        estimate(TABLE, **settings)
    assert str(error.value) == line


def test_anchor_statistics_want_one_action_a_turn():
    with pytest.raises(BadInput, match="action has 2 entries, the table 4"):
        anchor_stats(TABLE, ["a", "b"])


def test_the_package_needs_numpy_only():
    code = "import sys, verl_ext.credit; print(sorted({'verl', 'ray', 'torch', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
