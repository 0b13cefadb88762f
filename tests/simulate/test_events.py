"""The clock: timers, and work that shares a speed."""

import pytest

from verl_ext.simulate.events import Events, Shared


def _ends(work, speed, pauses=()):
    """When each item of ``work`` ends; ``speed`` of the number of items, 0 within ``pauses``."""
    shared, ends = Shared(), {}
    events = Events(shared)
    paused = []
    for i, units in enumerate(work):
        shared.add(units, lambda i=i: ends.setdefault(i, events.now))
    for start, stop in pauses:
        events.after(start, lambda: paused.append(1))
        events.after(stop, paused.pop)

    def speeds():
        shared.speed = 0.0 if paused else speed(len(shared.items))

    events.run(speeds, lambda seconds: None)
    return [ends[i] for i in range(len(work))]


def test_work_at_full_speed_ends_when_it_is_done():
    assert _ends([3, 1, 2], lambda items: 1.0) == [3, 1, 2]


def test_one_server_shared_by_all():
    # 3 share until 3 s (1 each), 2 share until 5 s (1 more each), the last is alone for its third unit.
    assert _ends([3, 1, 2], lambda items: 1 / max(items, 1)) == pytest.approx([6, 3, 5])


def test_a_pause_moves_the_ends_that_lie_behind_it():
    assert _ends([3, 1, 2], lambda items: 1.0, pauses=[(1.5, 4.0)]) == pytest.approx([5.5, 1, 4.5])


def test_equal_ends_come_in_the_order_of_their_start():
    shared, order = Shared(), []
    events = Events(shared)
    shared.speed = 0.1
    for i in range(20):
        shared.add(0.7, lambda i=i: order.append(i))
    events.run(lambda: None, lambda seconds: None)
    assert order == list(range(20))
    assert events.now == pytest.approx(7.0)


def test_seconds_that_pass_sum_to_the_clock_and_timers_come_first():
    shared, order, passed = Shared(), [], []
    events = Events(shared)
    shared.speed = 1.0
    shared.add(2.0, lambda: order.append("work"))
    events.after(2.0, lambda: order.append("timer"))
    events.after(5.0, lambda: order.append("last"))
    events.run(lambda: None, passed.append)
    assert order == ["timer", "work", "last"]
    assert sum(passed) == events.now == 5.0


def test_items_taken_out_keep_what_is_left_of_them():
    shared = Shared()
    shared.speed = 2.0
    shared.add(5.0, print)
    shared.add(3.0, repr)
    shared.advance(1.0)
    assert shared.remove_all() == [(1.0, repr), (3.0, print)]
    assert not shared.items


def test_stopped_ends_the_run_at_once():
    events = Events()
    events.after(1.0, lambda: setattr(events, "stopped", True))
    events.after(2.0, pytest.fail)
    events.run(lambda: None, lambda seconds: None)
    assert events.now == 1.0
