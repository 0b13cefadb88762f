"""Against exact policy gradients: every group of trajectories of small MDPs, weighted by its probability."""

import numpy as np
import pytest

from tests.credit import mdp as small
from verl_ext.credit import gigpo, grpo, leave_one_out, potential

each_mdp = pytest.mark.parametrize("mdp", small.ALL, ids=lambda mdp: mdp.name)
each_policy = pytest.mark.parametrize("seed", [0, 1])


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@each_mdp
@each_policy
def test_the_ground_truth_is_the_gradient(mdp, seed):
    """The exact gradient, by dynamic programming, against finite differences of the expected return."""
    theta = small.logits(mdp, seed)
    assert sum(path.probability for path in small.trajectories(mdp, theta)) == pytest.approx(1)
    numeric = np.zeros(theta.size)
    for k in range(theta.size):
        step = np.zeros(theta.size)
        step[k] = 1e-5
        up = small.expected_return(mdp, theta + step.reshape(theta.shape))
        numeric[k] = (up - small.expected_return(mdp, theta - step.reshape(theta.shape))) / 2e-5
    assert small.exact_gradient(mdp, theta) == pytest.approx(numeric, abs=1e-8)


@each_mdp
@each_policy
@pytest.mark.parametrize("n", [2, 3])
def test_leave_one_out_is_unbiased(mdp, seed, n):
    theta = small.logits(mdp, seed)
    assert small.moments(mdp, theta, n, leave_one_out).mean == pytest.approx(
        small.exact_gradient(mdp, theta), abs=1e-12
    )


@each_mdp
@each_policy
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_potential_with_lambda_1_is_unbiased_whatever_the_potential(mdp, seed, gamma):
    theta = small.logits(mdp, seed)
    exact = small.exact_gradient(mdp, theta, gamma)
    for n in (2, 3):
        assert small.moments(mdp, theta, n, lambda t: potential(t, gamma)).mean == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("estimator", [leave_one_out, potential])
def test_a_loss_that_divides_by_length_is_no_longer_the_gradient(estimator):
    """Uphill still, but the exactness of an estimator is that of a sum over turns (docs/credit.md)."""
    for mdp, least in ((small.repair(), 0.95), (small.tree(), 0.99)):
        theta = small.logits(mdp)
        exact = small.exact_gradient(mdp, theta)
        divided = small.moments(mdp, theta, 2, estimator, mean_over_turns=True).mean
        assert least < cosine(divided, exact) < 0.999


def test_what_is_not_claimed_unbiased_is_not():
    """Else the tests above would prove nothing: they must tell an estimator that is off by a little."""
    mdp = small.corridor()
    theta = small.logits(mdp)
    exact = small.exact_gradient(mdp, theta)
    for estimate in (
        gigpo,
        lambda t: grpo(t, "mean"),
        lambda t: potential(t, lam=0.9),
        lambda t: potential(t, baseline="group_mean"),
    ):
        assert np.abs(small.moments(mdp, theta, 2, estimate).mean - exact).max() > 1e-3


@each_mdp
@each_policy
@pytest.mark.parametrize("gamma", [1.0, 0.9])
@pytest.mark.parametrize("visits", ["every", "first"])
@pytest.mark.parametrize("norm", ["mean", "mean_std"])
def test_gigpo_points_uphill(mdp, seed, gamma, visits, norm):
    theta = small.logits(mdp, seed)
    mean = small.moments(mdp, theta, 2, lambda t: gigpo(t, gamma, 1.0, norm, norm, visits)).mean
    assert cosine(mean, small.exact_gradient(mdp, theta)) > 0.8


@each_mdp
@each_policy
def test_the_other_estimators_point_uphill_too(mdp, seed):
    theta = small.logits(mdp, seed)
    exact = small.exact_gradient(mdp, theta)
    for estimate in (grpo, lambda t: potential(t, lam=0.5), lambda t: potential(t, baseline="group_mean")):
        assert cosine(small.moments(mdp, theta, 2, estimate).mean, exact) > 0.7  # lambda = 0.5 is the least exact


def learned(mdp: small.MDP, end_potential: bool) -> np.ndarray:
    """Policy after ascent along the expected estimate of ``potential``."""
    theta = np.zeros(mdp.shape)
    for _ in range(60):
        step = small.moments(mdp, theta, 2, potential, end_potential=end_potential).mean
        theta = theta + 4.0 * step.reshape(theta.shape)
    return small.softmax(theta)


def test_with_end_potential_0_the_optimal_policy_is_learned():
    """In ``trap`` the potential praises hard-coding above the honest edit, and yet the honest edit is learned."""
    assert learned(small.trap(), end_potential=False)[0, 0] > 0.9


def test_with_another_end_potential_another_policy_is_learned():
    """Were the end of a session to keep its last potential, hard-coding (0 + 1) would beat honesty (0.3 + 0.6)."""
    assert learned(small.trap(), end_potential=True)[0, 0] < 0.1


def relative_to_episode(mdp: small.MDP, n: int, estimate, seed: int = 0) -> float:
    """Relative variance as a share of that of the unbiased episode estimator."""
    theta = small.logits(mdp, seed)
    episode = small.moments(mdp, theta, n, leave_one_out).relative
    return small.moments(mdp, theta, n, estimate).relative / episode


@each_policy
@pytest.mark.parametrize(
    ("mdp", "most"), [(small.corridor(), 0.96), (small.repair(), 0.98), (small.chance(), 0.65), (small.luck(), 0.75)]
)
def test_potential_has_less_variance_than_the_episode_estimator(mdp, most, seed):
    assert relative_to_episode(mdp, 3, potential, seed) < most


@each_policy
@pytest.mark.parametrize(("mdp", "most"), [(small.corridor(), 0.97), (small.chance(), 0.75), (small.luck(), 0.9)])
def test_gigpo_has_less_variance_where_states_are_shared(mdp, most, seed):
    assert relative_to_episode(mdp, 3, gigpo, seed) < most


@each_policy
def test_gigpo_has_more_variance_where_states_are_rarely_shared(seed):
    """A fact to know, not to be proud of: step groups of one or two members add noise (docs/credit.md)."""
    assert relative_to_episode(small.tree(), 3, gigpo, seed) > 1.2


def test_an_average_over_turns_is_the_better_baseline_for_potential():
    """Why ``potential`` takes the others' mean over turns, not their first turn."""

    def first_turn(table):
        value = table.return_S - table.potential_T[np.cumsum(table.length_S) - table.length_S]
        group = table.group_S
        size = np.bincount(group)[group]
        baseline = (np.bincount(group, weights=value)[group] - value) / (size - 1)
        advantage = table.returns_to_go(table.reward_T, 1.0) - table.potential_T - baseline[table.session_T]
        return table.in_order_given(advantage), None

    for mdp in (small.corridor(), small.repair(), small.chance(), small.luck()):
        theta = small.logits(mdp)
        other = small.moments(mdp, theta, 3, first_turn)
        assert other.mean == pytest.approx(small.exact_gradient(mdp, theta), abs=1e-12)
        assert small.moments(mdp, theta, 3, potential).variance < other.variance
