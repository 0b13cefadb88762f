"""Session metrics by hand."""

import pytest

from verl_ext.trainer.metrics import (
    lone_rows,
    segment_metrics,
    session_metrics,
    step_group_metrics,
    whole_sessions,
)
from verl_ext.trainer.turns import Row


def turn(tool="edit", valid=True, redundant=False, hard_coded=False, tokens=2):
    place = {"start": 10, "end": 10 + tokens}
    return {"tool": tool, "valid": valid, "redundant": redundant, "hard_coded": hard_coded, **place}


def fields(turns, stop, sandbox_s=0.0, public_share=0.0, flags=()):
    session = {"turns": turns, "stop": stop, "sandbox_s": sandbox_s, "generate_s": 1.0}
    return {"session": session, "public_share": public_share, "flags": list(flags)}


def test_by_hand():
    sessions = [
        fields([turn(tokens=6), turn("submit")], "submitted", sandbox_s=0.5, public_share=1.0),
        fields([turn(""), turn(valid=False), turn(redundant=True)], "max_turns", sandbox_s=0.1),
        fields([turn(hard_coded=True)], "response_budget", flags=["exit", "frames"]),
        fields([turn(), turn("submit")], "submitted", public_share=0.5),
    ]
    metrics = session_metrics(sessions, groups=["a", "a", "b", "b"], scores=[1.0, 0.0, 0.0, 0.0])
    assert metrics["session/turns"] == 2.0
    assert metrics["session/tokens_sampled"] == (6 + 7 * 2) / 4
    assert metrics["session/invalid"] == 0.25 and metrics["session/redundant"] == 0.25
    assert metrics["session/hard_coded"] == 0.25
    assert metrics["session/public_share"] == 0.375
    assert metrics["session/flag/exit"] == 0.25 and metrics["session/flag/heap"] == 0.0
    assert metrics["session/sandbox_s"] == pytest.approx(0.15)
    assert metrics["session/stop/submitted"] == 0.5 and metrics["session/stop/max_turns"] == 0.25
    assert metrics["session/stop/wall_clock"] == 0.0
    assert metrics["session/tool/none"] == 0.25 and metrics["session/tool/edit"] == 1.25
    assert metrics["session/degenerate_groups"] == 0.5  # group b: both 0
    assert not [key for key in metrics if "error" in key or "aborted" in key]
    assert metrics["session/redundant_per_success"] == 0.0


def test_redundant_actions_are_counted_in_sessions_that_succeeded():
    sessions = [
        fields([turn(redundant=True), turn(redundant=True), turn("submit")], "submitted"),
        fields([turn(redundant=True), turn("submit")], "submitted"),
        fields([turn(redundant=True)] * 6, "max_turns"),
    ]
    scores = [1.0, 1.0, 0.0]
    assert session_metrics(sessions, ["a"] * 3, scores)["session/redundant_per_success"] == 1.5
    assert "session/redundant_per_success" not in session_metrics(sessions, ["a"] * 3, [0.0, 0.9, 0.5])


def test_step_groups_by_hand():
    def a_turn(index, anchor, action):
        return {"index": index, "anchor": anchor, "action": action, "reward": 0.0}

    rows = [
        Row("g_0_0", (a_turn(0, "start", "edit"), a_turn(1, "x", "submit"))),
        Row("g_1_0", (a_turn(0, "start", "test"), a_turn(1, "start", "edit"), a_turn(2, "y", "submit"))),
        Row("h_0_0", (a_turn(0, "start", "edit"),)),  # the same text in another group is another state
        Row("pad_0_0", ()),
    ]
    assert step_group_metrics(rows) == {
        "step_groups/groups": 4.0,
        "step_groups/repeated_groups": 1.0,
        "step_groups/contested_groups": 1.0,
        "step_groups/repeated_turns": 0.5,
        "step_groups/contested_turns": 0.5,
    }


def test_the_only_session_of_a_group_is_found():
    keys = ["a_0_0", "a_1_0", "b_3_0", "b_3_1", "d_0_0", "d_2_0", "pad_0_0"]
    assert lone_rows(keys, [False] * 6 + [True]) == (["b_3_0", "b_3_1"], 1 / 3)


def test_a_session_of_several_rows_counts_once():
    one, two, three = ({**turn(), "index": i} for i in range(3))
    rows = [Row("g_0_1", (three,)), Row("g_0_0", (one, two)), Row("g_1_0", (one,))]
    cut = [fields([three], "submitted"), fields([one, two], "folded"), fields([one], "max_turns")]
    (first, whole), (second, other) = whole_sessions(rows, cut)
    assert (first, second) == (0, 2)  # the row with the session's last turns
    assert whole["session"]["turns"] == [one, two, three] and whole["session"]["stop"] == "submitted"
    assert other["session"]["turns"] == [one]


def test_reward_a_session_and_reward_a_row_have_names_of_their_own():
    """A winner in three rows beside a loser in one: verl's mean over rows says 0.75."""
    rows = [Row(key, ()) for key in ("g_0_2", "g_0_0", "g_1_0", "g_0_1")]
    found = segment_metrics(rows, [1.0, 1.0, 0.0, 1.0], [50, 80, 40, 30], [4, 5, 6, 1], padding=1)
    assert found == {
        "session/score": 0.5,
        "row/score": 0.75,
        "session/context_tokens": (80 + 40) / 2,
        "segments/per_session": 2.0,
        "segments/rows": 4.0,
        "segments/padding_share": 0.2,
        "segments/tokens_trained": 8.0,
    }


def test_a_session_has_the_score_of_its_last_segment():
    rows = [Row(key, ()) for key in ("g_0_0", "g_0_1")]
    assert segment_metrics(rows, [0.0, 1.0], [1, 1], [1, 1], padding=0)["session/score"] == 1.0


def test_process_terms_are_summed_over_a_session_and_averaged_over_sessions():
    charged = [{"charges": {"failed_call": 0.1}}, {"charges": {"failed_call": 0.1, "main_tokens": 0.03}}, {}]
    rows = [Row("g_0_0", tuple(charged[:1])), Row("g_0_1", tuple(charged[1:])), Row("g_1_0", ({"charges": {}},))]
    found = segment_metrics(rows, [0.0] * 3, [1] * 3, [1] * 3, padding=0)
    assert found["process/failed_call"] == pytest.approx(0.1)
    assert found["process/main_tokens"] == pytest.approx(0.015)
