"""Who waits, and whose sessions are trained on: shares of a step and lengths, by hand."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from verl_ext.trainer.idle import InFlight, idle_metrics
from verl_ext.trainer.lengths import Lengths, session_tokens


def tags(**tokens: int) -> dict[str, dict]:
    return {key: {"seq_len": count} for key, count in tokens.items()}


def test_rows_of_a_session_are_one_length_and_padding_and_prompts_none():
    rows = tags(a_0_0=5, a_0_1=7, a_1_0=3) | {"a_2_0": {"seq_len": 9, "is_padding": True}, "a": {"status": "running"}}
    assert session_tokens(rows) == {"a_0": 12, "a_1": 3}


def test_sessions_that_only_wait_or_are_thrown_away_count_as_ended():
    lengths = Lengths()
    lengths.see(tags(a_0_0=1, a_1_0=2, b_0_0=6, b_1_0=6))
    lengths.see(tags(b_0_0=6, b_1_0=6, c_0_0=6))  # two seen before
    found = lengths.step(tags(a_0_0=1, a_1_0=2))
    assert found["staleness/session_tokens/trained"] == pytest.approx(1.5)
    assert found["staleness/session_tokens/ended"] == pytest.approx(21 / 5)
    assert found["staleness/session_tokens/distance"] == pytest.approx(3 / 5)
    # In the end all of them are trained on: no session was preferred.
    found = lengths.step(tags(b_0_0=6, b_1_0=6, c_0_0=6))
    assert found["staleness/session_tokens/distance"] == 0
    assert found["staleness/session_tokens/trained"] == found["staleness/session_tokens/ended"] == pytest.approx(21 / 5)


def test_only_the_last_steps_are_looked_at():
    lengths = Lengths(steps=2)
    assert lengths.step({}) == {}
    lengths.step(tags(a_0_0=100))
    lengths.step(tags(b_0_0=4))
    assert lengths.step(tags(c_0_0=6))["staleness/session_tokens/trained"] == 5


def test_what_the_replay_buffer_throws_away_has_ended():
    cleared = []
    buffer = SimpleNamespace(
        partitions={"train": tags(a_0_0=8, b_0_0=2), "val": tags(v_0_0=50)},
        _clear_groups=lambda partition, uids: cleared.append((partition, uids)),
    )
    lengths = Lengths()
    lengths.see_evictions(buffer)
    buffer._clear_groups("train", {"a"})
    buffer._clear_groups("val", {"v"})
    assert cleared == [("train", {"a"}), ("val", {"v"})]
    assert lengths.step(tags(b_0_0=2)) == {
        "staleness/session_tokens/trained": 2,
        "staleness/session_tokens/ended": 5,
        "staleness/session_tokens/distance": 0.5,
    }


def test_devices_taken_in_turns_idle_by_turns():
    assert idle_metrics(10.0, 6.0, None) == {"idle/trainer": 0.6, "idle/rollout": 0.4}


def test_a_rollout_of_its_own_idles_where_no_request_is_under_way():
    found = idle_metrics(10.0, 1.0, [0, 4, 2, 0])
    assert found == {"idle/trainer": 0.1, "idle/rollout": 0.5, "idle/in_flight": 1.5}
    assert idle_metrics(10.0, 1.0, []) == {"idle/trainer": 0.1}
    assert idle_metrics(0.0, 0.0, None) == {}


def test_looks_that_fail_are_left_out():
    numbers = iter([3, RuntimeError("gone"), 0])

    def count() -> int:
        value = next(numbers)
        if isinstance(value, Exception):
            raise value
        return value

    looks = InFlight(count, look_s=0.01)
    looks.start()
    seen, deadline = [], time.monotonic() + 10
    while len(seen) < 2 and time.monotonic() < deadline:
        seen += looks.take()
        time.sleep(0.01)
    looks.end()
    looks.join(5)
    assert seen == [3, 0] and not looks.is_alive()
