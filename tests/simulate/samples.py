"""Workloads and policies for the tests."""

import json
import math

from hypothesis import strategies as st

from verl_ext.simulate.model import Machine, simulate
from verl_ext.simulate.policies import AReaL, OneStepOff, Sync, Verl
from verl_ext.simulate.workload import Parameters, StepCosts, distribution


def play(policy, turns="1", turn_s="4", tool_s="0", after_s="0", train_s="2", sync_s="0", seed=0, **rest):
    """Simulate; ``rest``: fields of Machine, and ``group``, ``steps`` and ``skip``."""
    drawn = [distribution(text) for text in (turns, turn_s, tool_s, after_s)]
    costs = StepCosts(seed, distribution(train_s), distribution(sync_s))
    sizes = {name: rest.pop(name, default) for name, default in (("group", 2), ("steps", 12), ("skip", 0))}
    return simulate(policy, Machine(**rest), Parameters(seed, *drawn), costs, **sizes)


HEAVY = {"turns": "uniform:1:5", "turn_s": "lognormal:1:0.5", "tool_s": "pareto:1:1.5"}


@st.composite
def settings(draw, sync=True, limits=True):
    """Keyword arguments of :func:`play`: a random machine, workload and costs."""
    number = st.integers(0, 40).map(lambda tenths: tenths / 8)
    found = {
        "turns": draw(st.sampled_from(["1", "3", "uniform:1:4"])),
        "turn_s": draw(st.sampled_from(["1", "lognormal:1:1", "exponential:2"])),
        "tool_s": draw(st.sampled_from(["0", "1", "pareto:1:1.3", "exponential:3"])),
        "after_s": str(draw(number)),
        "train_s": str(draw(number)),
        "sync_s": str(draw(number)) if sync else "0",
        "seed": draw(st.integers(0, 999)),
        "group": draw(st.integers(1, 3)),
        "steps": draw(st.integers(2, 10)),
    }
    if limits:
        found |= {
            "slots": draw(st.sampled_from([1, 2, 5, math.inf])),
            "saturation": draw(st.sampled_from([0.5, 3, math.inf])),
            "overlap_speed": draw(st.sampled_from([0.5, 1.0])),
            "poll_s": draw(st.sampled_from([0.0, 0.7])),
            "resume_s": draw(st.sampled_from([0.0, 1.0])),
        }
    return found


BATCHES = st.integers(1, 4)
AREAL = st.builds(AReaL, BATCHES, eta=st.integers(0, 4), order=st.sampled_from(["finished", "submitted"]))
VERL = st.builds(
    lambda size, updates, **rest: Verl(size * updates, updates, **rest),
    st.integers(1, 2),
    st.integers(1, 3),
    warmup=st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5]),
    threshold=st.sampled_from([None, 1, 2, 3]),
    strategy=st.sampled_from(["drop", "wait"]),
)
POLICIES = st.one_of(st.builds(Sync, BATCHES), st.builds(OneStepOff, BATCHES), AREAL, VERL)


def dump_row(prompt, session, tokens, generate_s, sandbox_s, segment=0, first_turn=0):
    """A line of a session dump, as ``SessionTrainerMixin._dump_sessions`` writes it (ids and log-probs left out)."""
    turns, start = [], 0
    for index, count in enumerate(tokens, first_turn):
        turns.append({"index": index, "start": start, "end": start + count, "tool": "edit", "valid": True})
        start += count + 5  # observation
    record = {"turns": turns, "stop": "submitted", "generate_s": generate_s, "sandbox_s": sandbox_s}
    return {"key": f"{prompt}_{session}_{segment}", "task_id": "t", "score": 1.0, "session": record}


def write_dump(folder, steps, prompts=2, sessions=2, generate_s=4.0, sandbox_s=2.0):
    """A dump of steps 1, 2, ..., every session alike but for its number of turns."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in range(1, steps + 1):
        rows = [
            dump_row(f"{step}a-{prompt}", session, [4] * (1 + session), generate_s, sandbox_s)
            for prompt in range(prompts)
            for session in range(sessions)
        ]
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_metrics(path, steps, first=1, step=10.0, gen=6.5, sync=0.5, age=0):
    """Metrics of verl's file logger; the validation before the first step, and a slow first step, as in a run."""
    lines = [{"step": first - 1, "data": {"val/pass_at_1/bugfix/val": 0.5}}]
    for number in range(first, first + steps):
        slow = 30.0 if number == first else 0.0
        seconds = {"step": step + slow, "gen": gen + slow, "update_actor": 2.0, "update_weights": sync}
        data = {f"timing_s/{name}": value for name, value in seconds.items()}
        data |= {
            f"training/off_policy/trajectory_staleness_worst/{name}": age / k for name, k in (("mean", 2), ("max", 1))
        }
        data["training/off_policy/trajectory_spans/mean"] = 1 + age / 4
        lines.append({"step": number, "data": data})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
