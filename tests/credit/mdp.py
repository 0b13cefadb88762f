"""Small tabular MDPs whose every trajectory can be written down, and the exact numbers that estimators are held to.

A policy is a softmax over logits (states, actions), so that the score of action a in state s is the unit vector of a
minus π(s). A session ends at a terminal transition or at the turn limit, which makes values depend on the turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from math import factorial

import numpy as np

from verl_ext.credit import CreditStats, TurnTable

END = -1
Estimator = Callable[[TurnTable], tuple[np.ndarray, CreditStats]]


@dataclass(frozen=True)
class MDP:
    """Start in state 0. ``moves[s][a]``: (probability, next state or END, reward) of each outcome."""

    name: str
    moves: list[list[list[tuple[float, int, float]]]]
    limit: int
    potential: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.moves), len(self.moves[0])


@dataclass(frozen=True)
class Trajectory:
    probability: float
    states: tuple[int, ...] = ()
    actions: tuple[int, ...] = ()
    rewards: tuple[float, ...] = ()
    end: int = 0


def corridor() -> MDP:
    """Three cells; forward out of the last one wins; back, or a step in place, revisits."""
    moves = [[[(1.0, s + 1 if s < 2 else END, float(s == 2))], [(1.0, max(s - 1, 0), 0.0)]] for s in range(3)]
    return MDP("corridor", moves, 5, (0.2, 0.5, 0.8))


def repair() -> MDP:
    """Bug (0), right edit (1), wrong edit (2); actions edit, undo, submit, which ends and wins in state 1 only."""
    edit = [(0.5, 1, 0.0), (0.5, 2, 0.0)]
    lose, win, undo = [(1.0, END, 0.0)], [(1.0, END, 1.0)], [(1.0, 0, 0.0)]
    moves = [[edit, undo, lose], [[(1.0, 2, 0.0)], undo, win], [edit, undo, lose]]
    return MDP("repair", moves, 3, (0.5, 0.9, 0.2))


def tree() -> MDP:
    """No state is visited twice in a session, and few are shared between two: most step groups have one turn."""
    moves = [
        [[(1.0, 1, 0.0)], [(1.0, 2, 0.1)]],
        [[(0.5, 3, 0.0), (0.5, 4, 0.0)], [(1.0, 5, 0.0)]],
        [[(1.0, 6, 0.0)], [(1.0, END, 0.3)]],
        *[[[(1.0, END, worth)], [(1.0, END, 1.0 - worth)]] for worth in (0.9, 0.2, 0.6, 0.8)],
    ]
    return MDP("tree", moves, 3, (0.4, 0.5, 0.4, 0.6, 0.3, 0.5, 0.6))


def chance(seed: int = 0) -> MDP:
    """Three states, two actions, random transitions and rewards on every turn."""
    rng = np.random.default_rng(seed)
    moves = []
    for _ in range(3):
        row = []
        for _ in range(2):
            to = rng.choice([0, 1, 2, END], size=2, replace=False)
            share = rng.uniform(0.2, 0.8)
            row.append([(p, int(s), float(rng.normal())) for p, s in zip((share, 1 - share), to, strict=True)])
        moves.append(row)
    return MDP("chance", moves, 3, tuple(rng.uniform(0, 1, 3)))


def luck() -> MDP:
    """Chance decides between an easy (1) and a hard state (2); what can then be done matters little beside it."""
    last = {1: (0.95, 0.8), 2: (0.2, 0.05)}
    moves = [[[(0.6, 1, 0.0), (0.4, 2, 0.0)], [(0.4, 1, 0.0), (0.6, 2, 0.0)]]]
    moves += [[[(p, END, 1.0), (1 - p, END, 0.0)] for p in last[s]] for s in (1, 2)]
    return MDP("luck", moves, 2, (0.5, 0.9, 0.1))


def trap() -> MDP:
    """An honest edit (state 1) wins three times in ten; a hard-coded one (2) looks perfect and never wins."""
    honest, hard_coded = [(0.3, END, 1.0), (0.7, END, 0.0)], [(1.0, END, 0.0)]
    return MDP("trap", [[[(1.0, 1, 0.0)], [(1.0, 2, 0.0)]], [honest] * 2, [hard_coded] * 2], 2, (0.0, 0.6, 1.0))


ALL = (corridor(), repair(), tree(), chance(), luck())


def logits(mdp: MDP, seed: int = 0) -> np.ndarray:
    """A policy that prefers nothing much."""
    return np.random.default_rng(seed).normal(size=mdp.shape) * 0.5


def softmax(theta: np.ndarray) -> np.ndarray:
    weights = np.exp(theta - theta.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def trajectories(mdp: MDP, theta: np.ndarray) -> list[Trajectory]:
    """Every trajectory with its probability; those sum to 1."""
    policy, done, open_ = softmax(theta), [], [Trajectory(1.0)]
    while open_:
        path = open_.pop()
        for action, outcomes in enumerate(mdp.moves[path.end]):
            for chance_, to, reward in outcomes:
                longer = Trajectory(
                    path.probability * policy[path.end, action] * chance_,
                    (*path.states, path.end),
                    (*path.actions, action),
                    (*path.rewards, reward),
                    to,
                )
                (done if to == END or len(longer.states) == mdp.limit else open_).append(longer)
    return done


def expected_return(mdp: MDP, theta: np.ndarray, gamma: float = 1.0) -> float:
    """Expected discounted return from the start, by dynamic programming."""
    return _values(mdp, softmax(theta), gamma)[0][0, 0]


def _values(mdp: MDP, policy: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """V (limit, S) and Q (limit, S, A), by turn."""
    states, actions = mdp.shape
    v, q = np.zeros((mdp.limit + 1, states)), np.zeros((mdp.limit, states, actions))
    for t in reversed(range(mdp.limit)):
        for s, a in product(range(states), range(actions)):
            q[t, s, a] = sum(p * (r + (gamma * v[t + 1, to] if to != END else 0)) for p, to, r in mdp.moves[s][a])
        v[t] = (policy * q[t]).sum(axis=1)
    return v, q


def exact_gradient(mdp: MDP, theta: np.ndarray, gamma: float = 1.0) -> np.ndarray:
    """Σ over turns and states of d_t(s) Σ_a ∇π(a|s) Q_t(s, a), (S · A,), with Q discounted and d_t not.

    For gamma = 1 the gradient of the expected return.
    """
    policy = softmax(theta)
    _, q = _values(mdp, policy, gamma)
    states, actions = mdp.shape
    gradient, at = np.zeros((states, actions)), np.eye(states)[0]
    for t in range(mdp.limit):
        centred = q[t] - (policy * q[t]).sum(axis=1, keepdims=True)
        gradient += at[:, None] * policy * centred
        after = np.zeros(states)
        for s, a in product(range(states), range(actions)):
            for p, to, _ in mdp.moves[s][a]:
                if to != END:
                    after[to] += at[s] * policy[s, a] * p
        at = after
    return gradient.ravel()


@dataclass(frozen=True)
class Moments:
    """Exact moments of one group's estimate, the mean over its sessions of Σ_t A_t ∇log π(a_t|s_t).

    Attributes:
        mean: Expected estimate (S · A,).
        variance: Trace of its covariance.
    """

    mean: np.ndarray
    variance: float

    @property
    def relative(self) -> float:
        """Variance over the squared length of the mean, which no scale of the advantages can change."""
        return self.variance / float(self.mean @ self.mean)


def moments(
    mdp: MDP,
    theta: np.ndarray,
    n: int,
    estimator: Estimator,
    end_potential: bool = False,
    mean_over_turns: bool = False,
) -> Moments:
    """Moments over all groups of n trajectories, each one group of one table.

    Sessions of a group are exchangeable, so that each multiset is taken once, with the number of its orders.

    Args:
        mdp: The MDP.
        theta: Logits of the policy.
        n: Sessions a group.
        estimator: Advantages of a table.
        end_potential: Let the end of a session keep the potential of its last state, where it should be 0; it enters
            as a reward of the last turn, which for gamma = 1 is the same.
        mean_over_turns: Divide each session by its turns, as verl's ``seq-mean-token-mean`` divides it by its tokens.
    """
    paths = trajectories(mdp, theta)
    tuples = np.array(list(combinations_with_replacement(range(len(paths)), n)))
    p = np.array([path.probability for path in paths])
    times = np.array([np.bincount(chosen).tolist() + [0] * (len(paths) - 1 - chosen.max()) for chosen in tuples])
    orders = factorial(n) / np.array([factorial(k) for k in range(n + 1)])[times].prod(axis=1)
    probability = p[tuples].prod(axis=1) * orders
    lengths = np.array([len(path.states) for path in paths])
    which = tuples.ravel()
    rows = np.repeat(np.arange(len(which)), lengths[which])
    turn = np.concatenate([np.arange(lengths[i]) for i in which])
    start = np.cumsum(lengths) - lengths
    flat = start[which][rows] + turn
    states = np.concatenate([path.states for path in paths])[flat]
    actions = np.concatenate([path.actions for path in paths])[flat]
    rewards = np.concatenate([path.rewards for path in paths])[flat]
    potential = np.array(mdp.potential)[states]
    if end_potential:
        rewards = rewards + potential * (turn == lengths[which][rows] - 1)
    table = TurnTable.from_columns(rows // n, rows % n, turn, states, rewards, potential=potential)
    advantage = estimator(table)[0]
    if mean_over_turns:
        advantage = advantage / lengths[which][rows]
    _, n_actions = mdp.shape
    score = -softmax(theta)[states]
    score[np.arange(len(score)), actions] += 1
    estimate = np.zeros((len(tuples), theta.size))
    for a in range(n_actions):
        np.add.at(estimate, (rows // n, states * n_actions + a), advantage * score[:, a] / n)
    mean = probability @ estimate
    return Moments(mean, float(probability @ ((estimate - mean) ** 2).sum(axis=1)))
