"""The session record and reading of calls, by hand-made cases."""

import pytest

from verl_ext.agent.session import Segment, Session, action_digest, action_of, ids_digest
from verl_ext.types import Observation, StopReason


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("submit", "{}", None),
        ("edit", '{"line": 3, "op": "negate"}', None),
        (None, None, "no tool call"),
        ("edit", '{"line": ', "arguments are not JSON"),
        ("edit", "[1]", "arguments are not an object"),
    ],
)
def test_action_of(name, arguments, error):
    action = action_of(name, arguments)
    assert action.tool == (name or "")
    assert (action.error or "").startswith(error or "") and bool(action.error) == bool(error)


def test_turn_table_and_invalid_run():
    session = Session([Segment([1, 2], [])], budget=9)
    good = Observation("ok", done=False, anchor="a", potential=0.5, seconds=0.25)
    bad = Observation("what?", done=False, anchor="a", potential=0.5, valid=False)
    session.segment.mask = [1, 1, 1]
    session.add_turn(0, action_of("run_tests", "{}"), good, 0.25, {"a.py": "1"})
    session.segment.mask += [0, 0, 1, 1]
    session.add_turn(5, action_of(None, None), bad, 0.5, {"a.py": "2"})
    session.stop = StopReason.MAX_TURNS
    (record,) = session.records()
    assert [(t["start"], t["end"], t["tool"], t["potential"]) for t in record["turns"]] == [
        (0, 3, "run_tests", 0.25),
        (5, 7, "", 0.5),
    ]
    assert (session.sources, session.public_share) == ({"a.py": "2"}, 0.5)
    assert session.invalid_run == 1 and record["stop"] == "max_turns" and record["sandbox_s"] == 0.25
    session.segments.append(Segment([1, 2, 3], []))
    assert len(session.records()) == 1  # no turn in it yet
    session.segment.mask = [1]
    session.add_turn(0, action_of("submit", "{}"), good, 0.5, {"a.py": "2"}, {"failed_call": 0.25})
    assert session.invalid_run == 0
    both = session.records()
    assert [[turn["index"] for turn in record["turns"]] for record in both] == [[0, 1], [2]]
    assert both[1]["turns"][0]["reward"] == -0.25
    assert [record["totals"] for record in both] == [{"turns": 3, "invalid": 1, "redundant": 0, "hard_coded": 0}] * 2


def test_action_digest_is_that_of_what_was_done():
    one = action_of("edit", '{"line": 3, "op": "negate"}')
    assert action_digest(one) == action_digest(action_of("edit", '{ "op":"negate", "line":3}'))
    others = [("edit", '{"line": 4, "op": "negate"}'), ("edit", "{}"), ("submit", "{}"), (None, None)]
    assert len({action_digest(one), *(action_digest(action_of(*other)) for other in others)}) == 5
    assert action_digest(action_of(None, None)) == action_digest(action_of("", "{"))


def test_digest_sees_every_id():
    assert ids_digest([1, 23]) != ids_digest([12, 3]) != ids_digest([1, 2, 3])


def test_stop_reasons_follow_the_design_table():
    infrastructure = {"sandbox_error", "grader_error", "server_error", "aborted"}
    truncated = {"response_budget", "context_overflow", "fold_limit", "wall_clock", "invalid_calls"}
    assert {str(r) for r in StopReason if r.infrastructure} == infrastructure
    assert {str(r) for r in StopReason if r.truncated} == truncated
