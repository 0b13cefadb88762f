"""Session metrics by hand."""

import pytest

pytest.importorskip("verl")
from verl_ext.trainer.mixin import only_sessions, session_metrics


def turn(tool="edit", valid=True, redundant=False, hard_coded=False):
    return {"tool": tool, "valid": valid, "redundant": redundant, "hard_coded": hard_coded}


def fields(turns, stop, sandbox_s=0.0, public_share=0.0, flags=()):
    session = {"turns": turns, "stop": stop, "sandbox_s": sandbox_s, "generate_s": 1.0}
    return {"session": session, "public_share": public_share, "flags": list(flags)}


def test_by_hand():
    sessions = [
        fields([turn(), turn("submit")], "submitted", sandbox_s=0.5, public_share=1.0),
        fields([turn(""), turn(valid=False), turn(redundant=True)], "max_turns", sandbox_s=0.1),
        fields([turn(hard_coded=True)], "response_budget", flags=["exit", "frames"]),
        fields([turn(), turn("submit")], "submitted", public_share=0.5),
    ]
    metrics = session_metrics(sessions, groups=["a", "a", "b", "b"], scores=[1.0, 0.0, 0.0, 0.0])
    assert metrics["session/turns"] == 2.0
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


def test_the_only_session_of_a_group_is_found():
    keys = ["a_0_0", "a_1_0", "b_3_0", "b_3_1", "c_0_0", "pad_0_0"]
    assert only_sessions(keys, [False] * 5 + [True]) == ["b_3_0", "b_3_1", "c_0_0"]
