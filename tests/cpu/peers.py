"""Trainer ranks and rollout workers as processes, driven as verl's ``CheckpointEngineManager`` drives them."""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

CONTEXT = multiprocessing.get_context("forkserver")  # a fork of a process that has imported everything: no wait
CONTEXT.set_forkserver_preload(["verl_ext.cpu.checkpoint_engine"])


def weights(spec: list[tuple[str, str, tuple[int, ...]]], seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Random bytes of the given names, dtypes and shapes, one at a time."""
    for number, (name, dtype, shape) in enumerate(spec):
        size = torch.Size(shape).numel() * getattr(torch, dtype).itemsize
        random = np.random.default_rng((seed, number)).integers(
            2 if dtype == "bool" else 256, size=size, dtype=np.uint8
        )
        # An empty array of NumPy's has no stride that torch could view.
        flat = torch.from_numpy(random) if size else torch.empty(0, dtype=torch.uint8)
        yield name, flat.view(getattr(torch, dtype)).view(shape)


def identity(name: str, weight: torch.Tensor) -> tuple[str, str, tuple[int, ...], str]:
    """What must be the same at both ends; the last entry is a digest of the bytes."""
    raw = weight.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return name, str(weight.dtype).removeprefix("torch."), tuple(weight.shape), hashlib.sha256(raw).hexdigest()


def _peak_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def _from_here() -> int:
    """Start counting the peak of resident memory anew; returns it."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak_bytes()


class _Worker:
    """One process; its methods are called by name."""

    def __init__(self, engine: dict[str, Any], gather: Any):
        from verl_ext.cpu.checkpoint_engine import GlooCheckpointEngine

        torch.set_num_threads(1)
        self.engine, self.gather = GlooCheckpointEngine(**engine), gather

    def __getattr__(self, name: str) -> Any:  # prepare, init_process_group, finalize
        return getattr(self.engine, name)

    def _gathered(self, spec: Any, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
        for named in weights(spec, seed):
            if self.gather is not None:
                self.gather.wait(20)  # as FSDP gathers a weight: all trainer ranks at the same one
            yield named

    def send(self, spec: Any, seed: int) -> int:
        before = _from_here()
        asyncio.run(self.engine.send_weights(self._gathered(spec, seed)))
        return _peak_bytes() - before

    def receive(self, die_at: int = -1, stop_at: int = -1) -> tuple[list, int]:
        async def take() -> list:
            got = []
            async for name, weight in self.engine.receive_weights():
                if len(got) == die_at:
                    os._exit(9)
                if len(got) == stop_at:
                    raise ValueError("the server refused this weight")
                got.append(identity(name, weight))
            return got

        before = _from_here()
        return asyncio.run(take()), _peak_bytes() - before


def _serve(pipe: Any, engine: dict[str, Any], gather: Any) -> None:
    worker = _Worker(engine, gather)
    while (call := pipe.recv()) is not None:
        name, args = call
        try:
            pipe.send((True, getattr(worker, name)(**args)))
        except Exception as error:
            pipe.send((False, f"{type(error).__name__}: {error}"))


class Peers:
    """Some trainer ranks and rollout workers; a context manager, at whose end all processes are gone."""

    def __init__(self, trainers: int, rollouts: int, **engine: Any):
        self.engine = engine
        self.gather = CONTEXT.Barrier(trainers) if trainers > 1 else None
        self.trainers = [self._start(is_master=rank == 0) for rank in range(trainers)]
        self.rollouts = [self._start() for _ in range(rollouts)]

    def _start(self, is_master: bool = False) -> tuple[Any, Any]:
        here, there = CONTEXT.Pipe()
        process = CONTEXT.Process(target=_serve, args=(there, self.engine | {"is_master": is_master}, self.gather))
        process.start()
        there.close()
        return process, here

    def add_rollout(self) -> None:
        self.rollouts.append(self._start())

    def kill_rollout(self, number: int) -> None:
        process, _ = self.rollouts.pop(number)
        process.kill()
        process.join()

    def __enter__(self) -> Peers:
        return self

    def __exit__(self, *_: Any) -> None:
        for process, _pipe in self.trainers + self.rollouts:
            process.kill()
            process.join()

    @staticmethod
    def ask(calls: list[tuple[Any, str, dict[str, Any]]], within_s: float = 60.0) -> list[tuple[bool, Any]]:
        """Call all at once, then collect: ``(True, result)``, or ``(False, error)``, for a dead one too."""
        for (_, pipe), name, args in calls:
            pipe.send((name, args))
        answers, end = [], time.monotonic() + within_s
        for (_, pipe), name, _args in calls:
            if not pipe.poll(max(0.0, end - time.monotonic())):
                raise TimeoutError(f"{name} hangs")
            try:
                answers.append(pipe.recv())
            except EOFError:
                answers.append((False, "dead"))
        return answers

    def all(self, name: str) -> list[tuple[bool, Any]]:
        return self.ask([(peer, name, {}) for peer in self.trainers + self.rollouts])

    def meet(self) -> list[tuple[bool, Any]]:
        from verl_ext.cpu.checkpoint_engine import GlooCheckpointEngine

        metadata = [answer for _, answer in self.all("prepare")]
        topology = GlooCheckpointEngine.build_topology(len(self.trainers), len(self.rollouts), metadata)
        calls = []
        for peers, arguments in zip((self.trainers, self.rollouts), topology, strict=True):
            for i, peer in enumerate(peers):
                calls.append((peer, "init_process_group", {key: value[i] for key, value in arguments.items()}))
        return self.ask(calls)

    def update(self, spec: Any, seed: int = 0, **first_rollout: int) -> tuple[list, list]:
        """One update of all weights; answers of the trainers and of the rollout workers."""
        assert all(ok for ok, _ in self.meet())
        calls = [(peer, "send", {"spec": spec, "seed": seed}) for peer in self.trainers]
        calls += [(peer, "receive", first_rollout if i == 0 else {}) for i, peer in enumerate(self.rollouts)]
        answers = self.ask(calls)
        if all(ok for ok, _ in answers):
            assert all(ok for ok, _ in self.all("finalize"))
        return answers[: len(self.trainers)], answers[len(self.trainers) :]
