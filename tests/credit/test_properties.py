"""What holds for every table: hypothesis draws tables, slow loops say what the numbers must be."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.credit import reference
from verl_ext.credit import TurnTable, anchor_stats, gigpo, grpo, leave_one_out, potential
from verl_ext.credit.segments import CHUNK, discounted_sums, pair_codes

# Multiples of 1/8 are exact in binary, so that equal returns are really equal and ties are common.
REWARDS = st.integers(-16, 16).map(lambda k: k / 8)


@st.composite
def rows(draw) -> list[tuple]:
    """Rows (group, session, turn, anchor, reward, valid, potential) of a random table, in random order."""
    result = []
    for group in range(draw(st.integers(1, 3))):
        for session in range(draw(st.integers(1, 4))):
            for turn in range(draw(st.integers(1, 6))):
                anchor = draw(st.sampled_from("abcd"))
                potential_ = draw(st.sampled_from((0.0, 0.25, 0.5, 0.875)))
                result.append((f"g{group}", session, turn, anchor, draw(REWARDS), draw(st.booleans()), potential_))
    return draw(st.permutations(result))


def table_of(found: list[tuple], **changes: object) -> TurnTable:
    group, session, turn, anchor, reward, valid, potential_ = zip(*found, strict=True)
    columns = {"group": group, "session": session, "turn": turn, "anchor": anchor, "reward": reward}
    columns |= {"valid": valid, "potential": potential_}
    return TurnTable.from_columns(**{**columns, **changes})


GAMMAS = st.sampled_from((1.0, 0.95, 0.5))
NORMS = st.sampled_from(("mean", "mean_std"))

ESTIMATORS = {
    "grpo": grpo,
    "grpo mean": lambda t: grpo(t, "mean"),
    "leave_one_out": leave_one_out,
    "gigpo": gigpo,
    "gigpo first": lambda t: gigpo(t, visits="first", step_norm="mean_std", episode_norm="leave_one_out"),
    "gigpo all": lambda t: gigpo(t, 0.9, 0.5, "mean_std", "mean_std", shaping_weight=0.5, invalid_penalty=0.25),
    "gigpo verl_agent": lambda t: gigpo(
        t, episode_norm="mean_std", step_norm="mean_std", invalid_penalty=0.25, compat="verl_agent"
    ),
    "potential": potential,
    "potential all": lambda t: potential(t, 0.9, 0.5, "group_mean", invalid_penalty=0.25),
}
each_estimator = pytest.mark.parametrize("estimate", ESTIMATORS.values(), ids=list(ESTIMATORS))


@given(
    rows(),
    GAMMAS,
    st.sampled_from((0.0, 1.0, 2.5)),
    st.sampled_from(("mean", "mean_std", "leave_one_out")),
    NORMS,
    st.sampled_from(("every", "first")),
    st.sampled_from((1e-6, 0.3)),
    st.sampled_from((0.0, 0.125)),
)
@settings(deadline=None, max_examples=200)
def test_gigpo_is_the_slow_one(found, gamma, omega, episode_norm, step_norm, visits, floor, penalty):
    fast, _ = gigpo(table_of(found), gamma, omega, episode_norm, step_norm, visits, floor, invalid_penalty=penalty)
    slow = reference.gigpo([row[:6] for row in found], gamma, omega, episode_norm, step_norm, visits, floor, penalty)
    assert fast == pytest.approx(slow, rel=1e-9, abs=1e-8)


@given(rows(), GAMMAS, st.sampled_from((0.0, 1.0, 2.5)), NORMS, st.sampled_from((0.0, 0.125)))
@settings(deadline=None, max_examples=200)
def test_verl_agent_is_the_slow_one(found, gamma, omega, mode, penalty):
    fast, _ = gigpo(table_of(found), gamma, omega, mode, mode, invalid_penalty=penalty, compat="verl_agent")
    slow = reference.verl_agent([row[:6] for row in found], gamma, omega, mode, penalty)
    assert fast == pytest.approx(slow, rel=1e-9, abs=1e-8)


@each_estimator
@given(found=rows(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_the_order_of_rows_changes_nothing(estimate, found, data):
    order = data.draw(st.permutations(range(len(found))))
    advantage, stats = estimate(table_of(found))
    shuffled, shuffled_stats = estimate(table_of([found[i] for i in order]))
    assert shuffled == pytest.approx(advantage[order], abs=1e-9)
    assert np.array(list(vars(shuffled_stats).values())) == pytest.approx(list(vars(stats).values()), abs=1e-9)


@each_estimator
@given(found=rows(), data=st.data())
@settings(deadline=None, max_examples=40)
def test_splitting_sessions_into_segments_changes_nothing(estimate, found, data):
    """A trainer has rows of segments, each with some of its session's turns, and reads the table off them."""
    segments: dict[tuple, list[tuple]] = {}
    for row in found:
        segments.setdefault((row[0], row[1], data.draw(st.integers(0, 2))), []).append(row)
    read = [row for key in data.draw(st.permutations(list(segments))) for row in segments[key]]
    whole = dict(zip([row[:3] for row in found], estimate(table_of(found))[0], strict=True))
    split = dict(zip([row[:3] for row in read], estimate(table_of(read))[0], strict=True))
    assert split == pytest.approx(whole, abs=1e-9)


@each_estimator
@given(found=rows(), data=st.data())
@settings(deadline=None, max_examples=25)
def test_names_of_groups_sessions_and_anchors_mean_nothing(estimate, found, data):
    shift = data.draw(st.integers(1, 10**12))
    other = [(int(g[1:]) * shift, f"s{s}", t, f"{g}{a}", *rest) for g, s, t, a, *rest in found]
    assert estimate(table_of(other))[0] == pytest.approx(estimate(table_of(found))[0], abs=1e-9)


def with_rewards(found: list[tuple], change) -> list[tuple]:
    """Rows with ``change(row, is_last)`` added to their rewards."""
    last = {}
    for row in found:
        last[row[:2]] = max(last.get(row[:2], 0), row[2])
    return [(*row[:4], row[4] + change(row, row[2] == last[row[:2]]), *row[5:]) for row in found]


SHIFTS = {"g0": 0.5, "g1": -3.0, "g2": 40.0}  # another one for each group


@pytest.mark.parametrize("norm", ["mean", "mean_std", "leave_one_out"])
@given(found=rows(), at=st.integers(0, 5))
@settings(deadline=None, max_examples=40)
def test_a_constant_on_every_return_of_a_group_changes_no_episode_term(norm, found, at):
    """Wherever in the session it is paid."""
    shifted = with_rewards(found, lambda row, last: SHIFTS[row[0]] * (row[2] == at or (last and row[2] < at)))
    before = gigpo(table_of(found), 0.9, 0.0, norm)[0]
    assert gigpo(table_of(shifted), 0.9, 0.0, norm)[0] == pytest.approx(before, rel=1e-6, abs=1e-8)


ON_LAST_TURN = {
    "gigpo": lambda t: gigpo(t, 1.0),
    "gigpo first std": lambda t: gigpo(t, 1.0, visits="first", step_norm="mean_std", episode_norm="mean_std"),
    "potential": potential,
    "potential group_mean": lambda t: potential(t, baseline="group_mean"),
}


@pytest.mark.parametrize("estimate", ON_LAST_TURN.values(), ids=list(ON_LAST_TURN))
@given(found=rows())
@settings(deadline=None, max_examples=40)
def test_without_discount_a_constant_on_last_rewards_changes_nothing(estimate, found):
    shifted = with_rewards(found, lambda row, last: SHIFTS[row[0]] * last)
    assert estimate(table_of(shifted))[0] == pytest.approx(estimate(table_of(found))[0], rel=1e-6, abs=1e-8)


@given(found=rows(), gamma=st.sampled_from((0.95, 0.5)))
@settings(deadline=None, max_examples=40)
def test_with_discount_a_constant_on_every_discounted_return_changes_nothing(found, gamma):
    """c on the last turn and (1 - gamma) c on every other add c to each G; a session's plain sum they change."""
    shifted = with_rewards(found, lambda row, last: SHIFTS[row[0]] * (1.0 if last else 1 - gamma))
    before, after = table_of(found), table_of(shifted)
    assert potential(after, gamma)[0] == pytest.approx(potential(before, gamma)[0], abs=1e-8)
    step_before = gigpo(before, gamma)[0] - gigpo(before, gamma, 0.0)[0]
    assert gigpo(after, gamma)[0] - gigpo(after, gamma, 0.0)[0] == pytest.approx(step_before, abs=1e-8)


@given(found=rows(), scale=st.sampled_from((0.125, 8.0)))
@settings(deadline=None, max_examples=40)
def test_a_scale_of_rewards_scales_and_a_standard_deviation_takes_it_out(found, scale):
    scaled = with_rewards(found, lambda row, last: row[4] * (scale - 1))
    assert gigpo(table_of(scaled))[0] == pytest.approx(scale * gigpo(table_of(found))[0], abs=1e-9)
    free = ("mean_std", "mean_std")
    assert gigpo(table_of(scaled), 0.9, 1.0, *free)[0] == pytest.approx(
        gigpo(table_of(found), 0.9, 1.0, *free)[0], rel=1e-6, abs=1e-7
    )


@pytest.mark.parametrize("norm", ["mean", "mean_std"])
@given(found=rows())
@settings(deadline=None, max_examples=40)
def test_without_step_weight_gigpo_is_the_episode_term(norm, found):
    assert gigpo(table_of(found), 0.9, 0.0, norm)[0].tolist() == grpo(table_of(found), norm)[0].tolist()
    one_out = gigpo(table_of(found), 0.9, 0.0, "leave_one_out")[0]
    assert one_out.tolist() == leave_one_out(table_of(found))[0].tolist()


@given(found=rows(), gamma=GAMMAS, lam=st.sampled_from((0.0, 0.5, 1.0)))
@settings(deadline=None, max_examples=40)
def test_a_potential_of_0_is_no_potential(found, gamma, lam):
    zero, none = table_of(found, potential=[0.0] * len(found)), table_of(found, potential=None)
    assert potential(zero, gamma, lam)[0].tolist() == potential(none, gamma, lam)[0].tolist()
    assert gigpo(zero, gamma, shaping_weight=0.5)[0].tolist() == gigpo(none, gamma)[0].tolist()


@given(found=rows(), gamma=GAMMAS, lam=st.sampled_from((0.0, 0.5, 1.0)))
@settings(deadline=None, max_examples=100)
def test_potential_is_the_slow_one(found, gamma, lam):
    rows_ = [row[:6] for row in found]
    sessions = reference.sessions_of(rows_)
    deltas = list(rows_)
    for numbers in sessions.values():
        for i, after in zip(numbers, [*numbers[1:], None], strict=True):
            next_ = 0.0 if after is None else found[after][6]
            deltas[i] = (*rows_[i][:4], rows_[i][4] + gamma * next_ - found[i][6], True)
    value = reference.returns_to_go(deltas, gamma * lam)
    mean = {key: np.mean([value[i] for i in numbers]) for key, numbers in sessions.items()}
    for baseline in ("leave_one_out", "group_mean"):
        expected = []
        for i, row in enumerate(found):
            own = row[:2] if baseline == "leave_one_out" else None
            others = [mean[key] for key in sessions if key[0] == row[0] and key != own]
            alone = sum(key[0] == row[0] for key in sessions) < 2
            expected.append(0.0 if alone else value[i] - np.mean(others))
        assert potential(table_of(found), gamma, lam, baseline)[0] == pytest.approx(expected, abs=1e-9)


@given(found=rows())
@settings(deadline=None, max_examples=40)
def test_with_mean_baselines_the_advantages_of_a_group_balance(found):
    """Over sessions for the episode term, over the members of a step group for the step term."""
    table = table_of(found)
    assume(len(table.groups) < len(table.sessions))
    episode = grpo(table, "mean")[0]
    step = gigpo(table)[0] - episode
    for group in {row[0] for row in found}:
        of_session = {row[1]: episode[i] for i, row in enumerate(found) if row[0] == group}
        assert sum(of_session.values()) == pytest.approx(0, abs=1e-9)
        for anchor in "abcd":
            here = [step[i] for i, row in enumerate(found) if row[0] == group and row[3] == anchor]
            assert sum(here) == pytest.approx(0, abs=1e-9)


@given(found=rows())
@settings(deadline=None, max_examples=40)
def test_the_statistics_say_what_the_advantages_are(found):
    table = table_of(found)
    advantage, stats = gigpo(table, 0.9, 0.5)
    episode = gigpo(table, 0.9, 0.0)[0]
    assert stats.episode_term == pytest.approx(np.abs(episode).mean())
    assert stats.step_term == pytest.approx(np.abs(advantage - episode).mean())
    assert stats.variance == pytest.approx((advantage**2).sum() / len(table.sessions))
    places = [(row[0], row[3]) for row in found]
    assert stats.shared_turns == pytest.approx(np.mean([places.count(place) > 1 for place in places]))
    returns = {}
    for row in found:
        returns.setdefault(row[0], {}).setdefault(row[1], []).append(row[4])
    sizes = {group: len(sessions) for group, sessions in returns.items()}
    kinds = {group: len({sum(rewards) for rewards in sessions.values()}) for group, sessions in returns.items()}
    assert stats.lone_groups == sum(size < 2 for size in sizes.values())
    assert stats.degenerate_groups == sum(sizes[group] > 1 and kinds[group] == 1 for group in sizes)
    actions = [row[2] % 2 for row in found]
    seen = {place: {a for a, p in zip(actions, places, strict=True) if p == place} for place in places}
    anchors = anchor_stats(table, actions)
    assert anchors.repeated_turns == pytest.approx(stats.shared_turns)
    assert anchors.contested_turns == pytest.approx(np.mean([len(seen[place]) > 1 for place in places]))
    assert anchors.contested_groups == sum(len(found_) > 1 for found_ in seen.values())


@pytest.mark.parametrize("discount", [1.0, 0.95, 0.5, 1e-3, 0.0])
@pytest.mark.parametrize("longest", [1, 3, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, CHUNK**2 + CHUNK + 1])
def test_discounted_sums_are_the_loop_at_every_length(discount, longest):
    rng = np.random.default_rng(longest)
    lengths = np.array([1, longest, min(2, longest), longest, max(1, longest // 2), 1])
    value = rng.normal(size=lengths.sum())
    expected, end = value.copy(), np.cumsum(lengths) - 1
    for i in reversed(range(len(value) - 1)):
        if i not in end:
            expected[i] += discount * expected[i + 1]
    assert discounted_sums(value, discount, lengths) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_discounted_sums_keep_their_digits_where_powers_underflow():
    """0.5 ** 10_000 is 0: a quotient of cumulated powers would be NaN here."""
    sums = discounted_sums(np.ones(10_000), 0.5, np.array([10_000]))
    assert sums[0] == 2.0 and sums[-1] == 1.0 and np.isfinite(sums).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6)), max_size=30), st.booleans())
@settings(deadline=None)
def test_pairs_get_one_number_each(pairs, sparse):
    scale = 10**6 if sparse else 1
    first = np.array([a * scale for a, _ in pairs], dtype=np.int64)
    second = np.array([b if sparse else b % 5 for _, b in pairs], dtype=np.int64)
    codes, n = pair_codes(first, second)
    assert n == len(set(zip(first, second, strict=True))) == len(set(codes.tolist()))
    assert len(set(zip(first, second, codes, strict=True))) == n


def test_statistics_are_plain_numbers():
    """They go into JSON and into trackers."""
    _, stats = gigpo(table_of([("g0", 0, 0, "a", 1.0, True, 0.0), ("g0", 1, 0, "a", 0.0, True, 0.0)]))
    assert {type(value) for value in vars(stats).values()} == {int, float}
