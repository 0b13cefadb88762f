"""Cases small enough to compute by hand."""

import numpy as np
import pytest

from verl_ext.credit import TurnTable, anchor_stats, gigpo, grpo, leave_one_out, potential


def table_of(*sessions: tuple, group: str = "g", **columns: list) -> TurnTable:
    """One group; a session is (anchors, rewards)."""
    numbers = [i for i, (anchors, _) in enumerate(sessions) for _ in anchors]
    return TurnTable.from_columns(
        [group] * len(numbers),
        numbers,
        [t for anchors, _ in sessions for t in range(len(anchors))],
        [anchor for anchors, _ in sessions for anchor in anchors],
        [reward for _, rewards in sessions for reward in rewards],
        **columns,
    )


SHORT_WIN, LONG_LOSS = ("ab", [0, 1]), ("acdefghi", [0] * 8)


def test_a_session_counts_once_whatever_its_turns():
    table = table_of(SHORT_WIN, LONG_LOSS)
    assert grpo(table, "mean")[0].tolist() == [0.5] * 2 + [-0.5] * 8
    assert leave_one_out(table)[0].tolist() == [1.0] * 2 + [-1.0] * 8
    # unbiased std of {1, 0} is sqrt(1/2)
    assert grpo(table)[0] == pytest.approx([0.5**0.5] * 2 + [-(0.5**0.5)] * 8)
    assert gigpo(table, step_weight=0.0)[0].tolist() == [0.5] * 2 + [-0.5] * 8


def test_gigpo_adds_the_step_term_on_the_shared_state_only():
    advantage, stats = gigpo(table_of(SHORT_WIN, LONG_LOSS), gamma=0.9)
    # both start on a with G = 0.9 and 0: 0.45 each side of their mean; every other state has one turn
    assert advantage == pytest.approx([0.95, 0.5, -0.95] + [-0.5] * 7)
    assert stats.shared_turns == pytest.approx(0.2)
    assert stats.episode_term == pytest.approx(0.5)
    assert stats.step_term == pytest.approx(0.09)
    assert stats.variance == pytest.approx((0.95**2 + 0.5**2 + 0.95**2 + 7 * 0.5**2) / 2)
    assert (stats.groups, stats.degenerate_groups, stats.lone_groups) == (1, 0, 0)


def test_gigpo_in_the_published_form_weighs_sessions_by_turns():
    advantage, _ = gigpo(table_of(SHORT_WIN, LONG_LOSS), gamma=0.9, compat="verl_agent")
    # mean return over the ten rows is 0.2
    assert advantage == pytest.approx([1.25, 0.8, -0.65] + [-0.2] * 7)


LOOP = ("ssst", [0, 0, 0, 1])  # on s: G = 1/8, 1/4, 1/2


def test_every_visit_is_a_member_of_the_step_group():
    table = table_of(LOOP, ("sx", [0, 0]))
    step = gigpo(table, 0.5)[0] - gigpo(table, 0.5, step_weight=0)[0]
    mean = (1 / 8 + 1 / 4 + 1 / 2 + 0) / 4
    assert step == pytest.approx([1 / 8 - mean, 1 / 4 - mean, 1 / 2 - mean, 0, -mean, 0])


def test_first_visits_make_the_mean_and_later_ones_are_measured_against_it():
    table = table_of(LOOP, ("sx", [0, 0]))
    step = gigpo(table, 0.5, visits="first")[0] - gigpo(table, 0.5, step_weight=0)[0]
    assert step == pytest.approx([1 / 16, 3 / 16, 7 / 16, 0, -1 / 16, 0])
    scaled = gigpo(table, 0.5, step_norm="mean_std", visits="first")[0] - gigpo(table, 0.5, step_weight=0)[0]
    # one share of the variance a session: the mean square of the three visits, and that of the one
    deviation = (((1 + 9 + 49) / 3 + 1) ** 0.5) / 16
    assert scaled == pytest.approx(step / deviation)


def test_one_sessions_visits_alone_count_under_every_and_not_under_first():
    table = table_of(LOOP, ("xy", [0, 0]))
    episode = gigpo(table, 0.5, step_weight=0)[0]
    assert gigpo(table, 0.5, visits="first")[0].tolist() == episode.tolist()
    mean = (1 / 8 + 1 / 4 + 1 / 2) / 3
    assert (gigpo(table, 0.5)[0] - episode) == pytest.approx([1 / 8 - mean, 1 / 4 - mean, 1 / 2 - mean, 0, 0, 0])


def test_equal_first_visits_do_not_blow_up_a_later_one():
    """Dividing a later visit by the spread of the first ones, here 0, once gave advantages of 1e5."""
    table = table_of(("ssa", [0, 0, 1]), ("sba", [0, 0, 1]))
    advantage, _ = gigpo(table, 0.5, step_norm="mean_std", visits="first")
    assert np.abs(advantage).max() < 3


def test_groups_of_one_and_groups_without_two_trainable_sessions_get_nothing():
    table = TurnTable.from_columns(
        group=["one", "one", "two", "two"],
        session=[0, 0, 0, 1],
        turn=[0, 1, 0, 0],
        anchor=["s", "s", "s", "s"],
        reward=[0, 1, 1, 5],
        potential=[0.5] * 4,
        trainable=[True, True, True, False],
    )
    for estimate in (grpo, leave_one_out, gigpo, potential):
        advantage, stats = estimate(table)
        assert advantage.tolist() == [0, 0, 0, 0]
        assert (stats.lone_groups, stats.groups, stats.degenerate_groups) == (2, 2, 0)


def test_infrastructure_failures_enter_no_statistic():
    broken = ("aaab", [0, 0, 0, -7])
    sessions = [SHORT_WIN, LONG_LOSS, broken]
    with_it = table_of(*sessions, trainable=[True] * 10 + [False] * 4, potential=[0.3] * 14, valid=[True] * 14)
    without = table_of(*sessions[:2], potential=[0.3] * 10, valid=[True] * 10)
    for estimate in (
        grpo,
        leave_one_out,
        gigpo,
        potential,
        lambda t: gigpo(t, visits="first", step_norm="mean_std", shaping_weight=0.5),
        lambda t: gigpo(t, compat="verl_agent", invalid_penalty=0.5),
        lambda t: potential(t, 0.9, 0.9, baseline="group_mean"),
    ):
        advantage, stats = estimate(with_it)
        expected, expected_stats = estimate(without)
        assert advantage.tolist() == [*expected.tolist(), 0, 0, 0, 0]
        assert stats == expected_stats


def test_equal_text_in_different_groups_is_not_one_state():
    table = TurnTable.from_columns([0, 0, 1, 1], [0, 1, 0, 1], [0] * 4, ["s"] * 4, [0, 2, 10, 20])
    assert gigpo(table)[0].tolist() == [-2, 2, -10, 10]


def test_equal_session_ids_in_different_groups_are_different_sessions():
    table = TurnTable.from_columns([0, 1, 0, 1], ["x", "x", "y", "y"], [0] * 4, ["s"] * 4, [0, 10, 2, 20])
    assert table.sessions == [(0, "x"), (0, "y"), (1, "x"), (1, "y")]
    assert grpo(table, "mean")[0].tolist() == [-1, -5, 1, 5]


def test_the_penalty_of_an_invalid_turn_is_seen_by_earlier_turns_and_by_no_later_one():
    sessions = (("abc", [0, 0, 1]), ("abc", [0, 0, 1]))
    table = table_of(*sessions, valid=[True, False, True, True, True, True], potential=[0.0] * 6)
    advantage, _ = gigpo(table, 0.5, invalid_penalty=0.4)
    # episode: -0.2 against 0.2; steps: penalty 0.2 seen from a, 0.4 on b, none on c
    assert advantage == pytest.approx([-0.3, -0.4, -0.2, 0.3, 0.4, 0.2])
    published, _ = gigpo(table, 0.5, invalid_penalty=0.4, compat="verl_agent")
    # there the penalty touches its own row only: episode mean over rows is 1 - 0.4 / 6
    assert published == pytest.approx([0.4 / 6, 0.4 / 6 - 0.4 - 0.2, 0.4 / 6, 0.4 / 6, 0.4 / 6 + 0.2, 0.4 / 6])
    # Φ = 0, so that Â = G, and each session is measured against the other's mean over turns
    turns = np.array([[0.25 - 0.2, 0.5 - 0.4, 1], [0.25, 0.5, 1]])
    expected = turns - turns.mean(axis=1)[::-1, None]
    assert potential(table, 0.5, invalid_penalty=0.4)[0] == pytest.approx(expected.ravel())


def test_potential_by_hand():
    table = table_of(("ab", [0, 1]), ("acd", [0, 0, 0]), potential=[0.5, 0.75, 0.5, 0.25, 0.0])
    advantage, stats = potential(table)
    # with gamma = lambda = 1 it is G minus the potential: 0.5, 0.25 and -0.5, -0.25, 0
    assert advantage == pytest.approx([0.5 + 0.25, 0.25 + 0.25, -0.5 - 0.375, -0.25 - 0.375, 0 - 0.375])
    assert stats.episode_term == pytest.approx((2 * 0.625 + 3 * 0.625) / 5)
    # lambda = 0 keeps only the next potential: deltas are 0.25, 0.25 and -0.25, -0.25, 0
    one_step, _ = potential(table, lam=0.0)
    assert one_step == pytest.approx([0.25 + 1 / 6, 0.25 + 1 / 6, -0.25 - 0.25, -0.25 - 0.25, -0.25])
    discounted, _ = potential(table, gamma=0.5, baseline="group_mean")
    # Â = 0, 0.25 and -0.5, -0.25, 0, with session means 0.125 and -0.25
    assert discounted == pytest.approx([0.0625, 0.3125, -0.4375, -0.1875, 0.0625])


def test_shaping_moves_only_states_that_carry_two_potentials():
    sessions = (("ab", [0, 1]), ("ab", [0, 0]))
    same = table_of(*sessions, potential=[0.2, 0.7, 0.2, 0.7])
    assert gigpo(same, shaping_weight=2.0)[0] == pytest.approx(gigpo(same)[0])
    apart = table_of(*sessions, potential=[0.2, 0.7, 0.2, 0.3])
    shift = gigpo(apart, shaping_weight=0.5)[0] - gigpo(apart)[0]
    assert shift == pytest.approx([0, -0.1, 0, 0.1])


def test_degenerate_groups_are_counted_to_rounding():
    table = table_of(("ab", [0.1, 0.2]), ("a", [0.3]))
    advantage, stats = grpo(table)
    assert stats.degenerate_groups == 1
    assert advantage.tolist() == [0, 0, 0]


def test_anchor_statistics_count_states_with_more_than_one_action():
    table = table_of(("aab", [0, 0, 1]), ("abc", [0, 0, 0]), ("a", [0]), trainable=[True] * 6 + [False])
    found = anchor_stats(table, ["read", "edit", "submit", "read", "submit", "edit", "other"])
    assert (found.groups, found.repeated_groups, found.contested_groups) == (3, 2, 1)
    assert found.repeated_turns == pytest.approx(5 / 6)
    assert found.contested_turns == pytest.approx(3 / 6)


def test_an_empty_table_has_no_advantages():
    table = TurnTable.from_columns([], [], [], [], [], potential=[], valid=[], trainable=[])
    for estimate in (grpo, leave_one_out, gigpo, potential, lambda t: gigpo(t, visits="first")):
        advantage, stats = estimate(table)
        assert len(advantage) == 0 and stats.groups == 0
