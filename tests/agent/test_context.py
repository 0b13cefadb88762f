"""Context managers alone: what each says after a turn, with room counted in words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_ext.agent.context import DROPPED, Exchange, GoOn, Reply, Restart, Return, _first, summary
from verl_ext.agent.folding import NOTED, OPENED, REQUEST, manager, named_files
from verl_ext.agent.settings import ContextConfig
from verl_ext.types import Action, CaseResult, Verdict

HEAD = 10


@dataclass
class Words:
    """A context whose tokens are words; each message costs one more."""

    budget: int = 60
    reserve: int = 6
    used: int = HEAD
    calls: dict[int, int] = field(default_factory=dict)

    def left(self, answer: str) -> int:
        return self.budget - self.used - len(answer.split()) - 1

    def size(self, messages) -> int:
        return HEAD + sum(len(message["content"].split()) + 1 for message in messages)

    def grown(self, turn: int) -> int:
        return self.used - self.calls[turn]


def play(context, answers, room, tools=None):
    """Feed turns until one does not simply go on; the moves."""
    moves = []
    for i, answer in enumerate(answers):
        tool = (tools or {}).get(i, "view")
        room.used += 3  # two words of a call and its message
        room.calls[i] = room.used
        move = context.move(Exchange(i, tool, True, f"call {i}", answer, f"line {i}"), room)
        moves.append(move)
        if not isinstance(move, GoOn):
            break
        room.used += len(move.answer.split()) + 1
    return moves


def words(n):
    return " ".join(["w"] * n)


def of(name, **settings):
    return manager(name)(ContextConfig(manager=name, **settings), ("a.py", "b/c.py"))


def test_none_goes_on_until_nothing_helps():
    moves = play(of("none"), [words(12)] * 9, Words())
    assert moves == [GoOn(words(12))] * 2 + [None]  # 10 + 2 * 16 + 3 + 13 leaves 2, and 6 are needed


def test_drop_oldest_drops_answers_from_the_front_until_its_share_is_reached():
    moves = play(of("drop_oldest", drop_to=0.75), [words(12)] * 9, Words())
    assert moves[:2] == [GoOn(words(12))] * 2
    contents = [message["content"] for message in moves[2].messages]
    # 45 of 60 words: 10, then 3 + 2 and 3 + 13 and 3 + 13 are 47; with both old answers gone 36.
    assert contents == ["call 0", DROPPED, "call 1", DROPPED, "call 2", words(12)]
    assert [message["role"] for message in moves[2].messages] == ["assistant", "tool"] * 3


def test_drop_oldest_drops_whole_turns_when_answers_are_not_enough():
    room = Words(budget=40)
    moves = play(of("drop_oldest", drop_to=0.6), [words(1)] * 20, room)
    contents = [message["content"] for message in moves[-1].messages]
    # Old turns cost 5 words with their answers dropped, as much as whole: only leaving turns out makes room.
    assert isinstance(moves[-1], Restart) and room.size(moves[-1].messages) <= 24
    assert contents[0] != "call 0" and contents[-1] == words(1) and contents[-2] == f"call {len(moves) - 1}"


def test_drop_oldest_gives_up_when_the_latest_answer_alone_is_too_long():
    assert play(of("drop_oldest"), [words(5), words(80)], Words())[-1] is None


def test_env_summary_keeps_the_latest_answers_whole():
    moves = play(of("env_summary", keep_turns=1), [words(12)] * 9, Words())
    assert [message["content"] for message in moves[-1].messages] == [
        *("call 0", "line 0", "call 1", "line 1", "call 2", words(12))
    ]


def test_env_summary_gives_up_when_that_is_not_enough():
    assert play(of("env_summary", keep_turns=9), [words(12)] * 9, Words())[-1] is None


def test_summary_has_one_format():
    public = Verdict(False, (CaseResult("a", True), CaseResult("b", False)), "oracle", "wrong", 0.0)
    edit = Action("edit", {"line": 3, "op": "flip"})
    assert summary(edit, Reply(""), public) == "edit 3: ok, 1/2 passed"
    assert summary(edit, Reply("", redundant=True), public) == "edit 3: no effect, 1/2 passed"
    assert summary(Action("view", {"path": "a.py"}), Reply("", valid=False), public) == "view a.py: refused, 1/2 passed"
    assert summary(Action("", error="no tool call"), Reply("", valid=False), public) == "no call: refused, 1/2 passed"


def test_a_note_replaces_the_history():
    context = of("note")
    assert context.act(Action("note", {"text": "tried 3"})) == Reply(NOTED)
    moves = play(context, [words(4), NOTED], Words(), {1: "note"})
    assert moves == [GoOn(words(4)), Restart(moves[1].messages)]
    assert [message["content"] for message in moves[1].messages] == ["call 1", NOTED]


@pytest.mark.parametrize("arguments", [{}, {"text": ""}, {"text": 3}, {"text": "a", "more": "b"}])
def test_a_note_without_text_is_refused(arguments):
    reply = of("note").act(Action("note", arguments))
    assert not reply.valid and "text" in reply.text


def test_asked_for_a_note_only_a_note_or_submit_is_answered():
    context = of("note", note_at=0.5)
    assert context.act(Action("view")) is None
    moves = play(context, [words(12)] * 2, Words())
    assert moves == [GoOn(words(12)), GoOn(f"{words(12)}\n{REQUEST}")]
    assert context.act(Action("view")) == Reply("call note", valid=False)
    assert context.act(Action("submit")) is None and context.act(Action("note", {"text": "x"})).valid
    assert context.move(Exchange(2, "view", False, "call 2", "call note", ""), Words()) is None


def test_an_answer_too_long_to_be_shown_gives_way_to_the_request():
    assert play(of("note"), [words(70)], Words()) == [GoOn(f"{DROPPED}\n{REQUEST}")]
    assert play(of("note"), [words(70)], Words(budget=20)) == [None]


def test_a_branch_leaves_its_message():
    context = of("fold")
    assert context.act(Action("branch", {"goal": "mend a.py"})) == Reply(OPENED)
    tools = {1: "branch", 3: "return"}
    moves = play(context, [words(2), OPENED, words(3), "done"], Words(), tools)
    assert moves == [GoOn(words(2)), GoOn(OPENED), GoOn(words(3)), Return(1, "done")]
    assert not context.branching


def test_branches_do_not_nest_and_are_limited():
    context = of("fold", branches=1)
    assert not context.act(Action("return", {"message": "x"})).valid
    play(context, [OPENED], Words(), {0: "branch"})
    assert context.act(Action("branch", {"goal": "x"})) == Reply("a branch is open: call return first", valid=False)
    assert context.act(Action("return", {"message": "x"})) == Reply("x")
    context.move(Exchange(1, "return", True, "", "x", ""), Words(calls={0: 0}))
    assert context.act(Action("branch", {"goal": "x"})) == Reply("no branch left of 1", valid=False)


@pytest.mark.parametrize(
    ("settings", "answers", "why"),
    [
        ({"branch_turns": 2}, [OPENED, "a", "b"], "out of turns"),
        ({"branch_tokens": 8}, [OPENED, words(5), "b"], "out of tokens"),
        ({}, [OPENED, words(20), words(30)], "context full"),
    ],
)
def test_the_environment_closes_a_branch(settings, answers, why):
    context = of("fold", **settings)
    moves = play(context, answers, Words(), {0: "branch"})
    assert moves[-1] == Return(0, f"[branch closed: {why}] line 2") and not context.branching


def test_without_a_branch_fold_has_nothing_to_leave_out():
    assert play(of("fold"), [words(20)] * 9, Words())[-1] is None


def test_a_branch_strays_when_it_changes_a_file_its_goal_does_not_name():
    context = of("fold")
    context.act(Action("branch", {"goal": "mend c and see file 2"}))
    turn = Exchange(1, "edit", True, "", "", "", changed=("a.py",))
    assert not context.strays(turn)  # not open yet
    context.move(Exchange(0, "branch", True, "", OPENED, ""), Words())
    assert context.strays(turn) and not context.strays(replace(turn, changed=("b/c.py",)))
    context.goal = "look around"
    assert not context.strays(turn)


@pytest.mark.parametrize(
    ("goal", "found"),
    [
        ("file 1", {"a.py"}),
        ("file 11", set()),
        ("a.py, then b/c.py.", {"a.py", "b/c.py"}),
        ("b/c.py", {"b/c.py"}),
        ("c", {"b/c.py"}),
        ("cat", set()),
    ],
)
def test_files_that_a_goal_names(goal, found):
    assert named_files(goal, ("b/c.py", "a.py")) == found


@given(st.integers(0, 30), st.integers(1, 40))
def test_first_is_the_smallest_that_holds(last, threshold):
    expected = threshold if threshold <= last else None
    assert _first(last, lambda n: n >= threshold) == expected
