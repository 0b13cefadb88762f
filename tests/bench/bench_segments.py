"""Tokens trained a session, and trainer time, as segments against one row a turn of the same sessions.

    python tests/bench/bench_segments.py [--turns 10 30 50] [--managers none drop_oldest ...] [--budget 8192]

Sessions are synthetic: the context managers of verl_ext.agent decide on random texts of random lengths about the given
means. Each sampled token is trained once both ways, in the same context; a row a turn repeats the whole context for
each turn, a segment holds it once. Tokens are counted at the given lengths. Time is the CPU time of forward and
backward passes of a TinyAgent-size network on sessions with all lengths divided by --scale, in micro-batches that
verl's balancing cuts from the same token budget, on one thread, the two ways in turns; a ratio is the median over
repeats. Exit status 1 when the two ways do not have the same gradient.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from transformers import Qwen3ForCausalLM
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from verl_ext.agent.context import DROPPED, Context, Exchange, GoOn, Message, Restart
from verl_ext.agent.folding import Fold, Note, manager
from verl_ext.agent.settings import MANAGERS, ContextConfig
from verl_ext.cpu.attention import NAME as ATTENTION
from verl_ext.tiny.model import config as tiny_config

BRANCH_TURNS = 8  # for fold: branch after branch of so many turns, opening and return included
VOCABULARY = 700
ATTEMPTS = 200
TOLERANCE = 1e-3  # of the gradients' norm; float32 sums in another order


@dataclass(frozen=True)
class Lengths:
    """Mean tokens of the first prompt, an action and an observation; the budget and fixed texts.

    Actions are drawn uniformly from half to one and a half of their mean, observations log-normally: many are short.
    """

    prompt: int
    action: int
    observation: int
    budget: int
    summary: int
    note: int
    marker: int = 4

    def scaled(self, by: int) -> Lengths:
        """All lengths divided, for a network that is as much smaller."""
        names = ("prompt", "action", "observation", "budget", "summary", "note")
        return Lengths(**{name: max(1, getattr(self, name) // by) for name in names}, marker=max(1, self.marker // by))


@dataclass
class TrainingRow:
    """A context and what follows in it; ``mask`` is 1 on the tokens of ``response`` that are trained."""

    prompt: list[int]
    response: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


class Play:
    """One session as the agent loop would keep it; also what its context manager may ask (``Room``)."""

    def __init__(self, lengths: Lengths, rng: np.random.Generator):
        self.lengths, self.rng, self.budget = lengths, rng, lengths.budget
        self.reserve = max(lengths.note, lengths.action * 3 // 2)
        self.texts: dict[str, list[int]] = {DROPPED: self.draw(lengths.marker)}
        self.prompt = self.draw(lengths.prompt)
        self.segments: list[TrainingRow] = [TrainingRow(list(self.prompt))]
        self.turns: list[TrainingRow] = []
        self.calls: dict[int, int] = {}
        self.redrawn = 0

    def draw(self, count: int) -> list[int]:
        return self.rng.integers(0, VOCABULARY, count).tolist()

    def text(self, name: str, count: int) -> str:
        """A text of its own with so many tokens; its name stands for it."""
        self.texts[name] = self.draw(max(1, count))
        return name

    def ids(self, text: str) -> list[int]:
        """Of a text, or of what a manager made of some: line by line, a line of its own is a marker."""
        return [i for line in text.split("\n") for i in self.texts.setdefault(line, self.draw(self.lengths.marker))]

    @property
    def context(self) -> list[int]:
        return self.segments[-1].prompt + self.segments[-1].response

    def left(self, answer: str) -> int:
        return self.budget - len(self.segments[-1]) - len(self.ids(answer))

    def size(self, messages: Sequence[Message]) -> int:
        return len(self.prompt) + sum(len(self.ids(message["content"])) for message in messages)

    def grown(self, turn: int) -> int:
        return len(self.segments[-1]) - self.calls[turn]

    def append(self, ids: list[int], trained: int) -> None:
        segment = self.segments[-1]
        segment.response += ids
        segment.mask += [trained] * len(ids)

    def run(self, name: str, turns: int) -> bool:
        """Play so many turns under a manager; False when it found no room for all of them."""
        settings = ContextConfig(manager=name, branches=turns, branch_turns=turns)
        of = manager(name)(settings)
        for turn in range(turns):
            tool = self._tool(of, turn)
            count = self.lengths.note if tool in ("note", "return") else self._action()
            call = self.text(f"call {turn}", count)
            self.turns.append(TrainingRow(self.context, self.ids(call), [1] * count))
            self.append(self.ids(call), 1)
            self.calls[turn] = len(self.segments[-1])
            if turn == turns - 1:
                break
            answer = self.text(f"the whole answer of turn {turn}", self._observation())
            if tool in ("note", "branch"):
                answer = "noted" if tool == "note" else "branch open"
            elif tool == "return":
                answer = call  # its message, shown again
            summary = self.text(f"line {turn}", self.lengths.summary)
            move = of.move(Exchange(turn, tool, True, call, answer, summary), self)
            if move is None:
                return False
            if isinstance(move, GoOn):
                self.append(self.ids(move.answer), 0)
            elif isinstance(move, Restart):
                after = [i for message in move.messages for i in self.ids(message["content"])]
                self.segments.append(TrainingRow([*self.prompt, *after]))
            else:
                cut = self.context[: self.calls[move.turn]]
                self.segments.append(TrainingRow([*cut, *self.ids(move.answer)]))
        self._end()
        return True

    def _tool(self, of: Context, turn: int) -> str:
        if isinstance(of, Note) and of.asked:
            return "note"
        if isinstance(of, Fold) and turn:
            if not of.branching:
                return "branch"
            if turn - of.open == BRANCH_TURNS - 1:
                return "return"
        return "edit"

    def _action(self) -> int:
        return int(self.rng.integers(max(1, self.lengths.action // 2), self.lengths.action * 3 // 2 + 1))

    def _observation(self) -> int:
        drawn = self.rng.lognormal(np.log(self.lengths.observation) - 0.32, 0.8)  # the mean is that of the lengths
        return int(min(max(1, drawn), 4 * self.lengths.observation))

    def _end(self) -> None:
        """A row ends with its last sampled token: what was observed after it trains nothing."""
        for row in self.segments:
            end = max((i + 1 for i, bit in enumerate(row.mask) if bit), default=0)
            row.response, row.mask = row.response[:end], row.mask[:end]
        self.segments = [row for row in self.segments if row.response]


def play(name: str, turns: int, lengths: Lengths, seed: int) -> Play:
    """A session in which the manager found room for all turns; another one is drawn where it did not."""
    limit = replace(lengths, budget=10**9) if name == "none" else lengths
    for attempt in range(ATTEMPTS):
        session = Play(limit, np.random.default_rng([seed, turns, attempt]))
        if session.run(name, turns):
            session.redrawn = attempt
            return session
    sys.exit(f"{name} finds no room for {turns} turns in a budget of {lengths.budget} tokens; give a larger --budget")


class Words:
    """What the sizes of TinyAgent are taken from in place of its tokenizer."""

    eos_token_id, pad_token_id = 1, 0

    def __len__(self) -> int:
        return VOCABULARY


class Trainer:
    """Forward and backward passes of a TinyAgent-size network, cut and packed as verl's engine does on a CPU."""

    def __init__(self, token_budget: int):
        config = tiny_config(Words())
        config._attn_implementation = ATTENTION
        torch.manual_seed(0)
        self.model, self.token_budget = Qwen3ForCausalLM(config).float(), token_budget

    def micro_batches(self, rows: Sequence[TrainingRow]) -> list[list[TrainingRow]]:
        """The fewest that keep to the budget, balanced by verl; a row beyond it is allowed its own length."""
        lengths = [len(row) for row in rows]
        work = calculate_workload(torch.tensor(lengths)).tolist()
        allowed = max(self.token_budget, *lengths)
        for count in range(-(-sum(lengths) // allowed), len(rows)):
            parts = get_seqlen_balanced_partitions(work, count, equal_size=False)
            if all(sum(lengths[i] for i in part) <= allowed for part in parts):
                return [[rows[i] for i in part] for part in parts]
        return [[row] for row in rows]

    def train(self, batches: Sequence[Sequence[TrainingRow]]) -> float:
        """CPU seconds of the passes; leaves the gradient of the sampled tokens' summed log-probs."""
        self.model.zero_grad()
        began = time.process_time()
        for rows in batches:
            ids = torch.tensor([i for row in rows for i in (*row.prompt, *row.response)])
            positions = torch.cat([torch.arange(len(row)) for row in rows])
            # The bit of a token stands where it is predicted, one before it.
            trained = [bit for row in rows for bit in (*[0] * (len(row.prompt) - 1), *row.mask, 0)]
            logits = self.model(input_ids=ids[None], position_ids=positions[None], use_cache=False).logits[0]
            log_probs = logits.log_softmax(-1).gather(-1, ids.roll(-1)[:, None])[:, 0]
            (-(log_probs * torch.tensor(trained)).sum()).backward()
        return time.process_time() - began

    def gradient(self) -> torch.Tensor:
        return torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()]).clone()


def count(sessions: Sequence[Play]) -> dict[str, float]:
    """Means a session: sampled tokens, segments, tokens of both ways."""
    trained = [[sum(map(len, rows)) for rows in (play.segments, play.turns)] for play in sessions]
    segments, turns = np.mean(trained, axis=0)
    sampled = [sum(sum(row.mask) for row in play.segments) for play in sessions]
    assert sampled == [sum(sum(row.mask) for row in play.turns) for play in sessions], "a token is trained once"
    longest = np.mean([max(map(len, play.segments)) for play in sessions])
    rows = np.mean([len(play.segments) for play in sessions])
    redrawn = sum(play.redrawn for play in sessions)
    return {
        "sampled": np.mean(sampled),
        "rows": rows,
        "longest": longest,
        "segments": segments,
        "turns": turns,
        "redrawn": redrawn / (redrawn + len(sessions)),
    }


def measure(trainer: Trainer, sessions: Sequence[Play], repeats: int) -> tuple[float, float, float, float]:
    """Median seconds as segments and as turns, the median of their ratios, and how far their gradients are apart."""
    ways = [trainer.micro_batches([row for play in sessions for row in rows(play)]) for rows in (_segments, _turns)]
    taken, gradients = [], []
    for _ in range(repeats):
        taken.append([])
        gradients = []
        for batches in ways:
            taken[-1].append(trainer.train(batches))
            gradients.append(trainer.gradient())
    apart = float((gradients[0] - gradients[1]).norm() / gradients[1].norm())
    segments, turns = (statistics.median(way) for way in zip(*taken, strict=True))
    return segments, turns, statistics.median(turns / segments for segments, turns in taken), apart


def _segments(play: Play) -> list[TrainingRow]:
    return play.segments


def _turns(play: Play) -> list[TrainingRow]:
    return play.turns


def main() -> int:
    """Count, measure, print a table, compare the gradients."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, nargs="+", default=[10, 30, 50])
    parser.add_argument("--managers", nargs="+", choices=MANAGERS, default=["none", "drop_oldest", "note", "fold"])
    for name, tokens in (("prompt", 1200), ("action", 120), ("observation", 480), ("summary", 24), ("note", 160)):
        parser.add_argument(f"--{name}", type=int, default=tokens, help="mean tokens")
    parser.add_argument("--budget", type=int, default=8192, help="tokens of a context; none has no limit")
    parser.add_argument("--sessions", type=int, default=32, help="for the count of tokens")
    parser.add_argument("--timed", type=int, default=2, help="sessions for the time; 0: only count")
    parser.add_argument("--scale", type=int, default=8, help="lengths are divided by this for the time")
    parser.add_argument("--micro-batch", type=int, default=4096, help="tokens, for the time")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    lengths = Lengths(args.prompt, args.action, args.observation, args.budget, args.summary, args.note)
    torch.set_num_threads(1)
    trainer = Trainer(args.micro_batch)
    print(f"thousands of tokens a session, {args.sessions} sessions; seconds a session with lengths / {args.scale}")
    print(
        f"{'':11} {'turns':>5} {'sampled':>8} {'segments':>9} {'longest':>8} {'in segments':>12} {'in turns':>9} "
        f"{'ratio':>6} {'s segments':>11} {'s turns':>8} {'ratio':>6}  gradients apart, no room"
    )
    worst = 0.0
    for name in args.managers:
        for turns in args.turns:
            found = count([play(name, turns, lengths, seed) for seed in range(args.sessions)])
            in_thousands = {key: found[key] / 1e3 for key in ("sampled", "longest", "segments", "turns")}
            line = (
                f"{name:11} {turns:5} {in_thousands['sampled']:8.1f} {found['rows']:9.1f} "
                f"{in_thousands['longest']:8.1f} {in_thousands['segments']:12.1f} {in_thousands['turns']:9.1f} "
                f"{found['turns'] / found['segments']:6.1f} "
            )
            apart = 0.0
            if args.timed:
                small = [play(name, turns, lengths.scaled(args.scale), seed) for seed in range(args.timed)]
                segments, by_turn, ratio, apart = measure(trainer, small, args.repeats)
                line += f"{segments / args.timed:11.2f} {by_turn / args.timed:8.2f} {ratio:6.1f}  {apart:.0e}"
                worst = max(worst, apart)
            print(f"{line}, {found['redrawn']:.0%}", flush=True)
    if worst > TOLERANCE:
        print(f"the two ways have gradients {worst:.1e} of their norm apart, more than {TOLERANCE:.0e}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
