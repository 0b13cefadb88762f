"""verl's checkpoint engine without an accelerator: trainer rank 0 broadcasts the weights to rollout workers by gloo.

The separate modes hold trainer and rollout in different processes and refuse ``naive``; verl's other engines need a
GPU or an NPU. Written as verl's NCCL engine is (``verl/checkpoint_engine/nccl_checkpoint_engine.py``): a bucket is
filled, or read, while another one travels. Two things differ. Each update has a process group of its own, so that
replicas may come, go and be restarted between two; and the sender waits until every receiver has taken every weight.

Memory: :mod:`verl_ext.cpu.buckets`. verl's next leg, from the rollout worker into vLLM, cannot split a weight on a CPU,
so in a run the bucket must hold the largest one (verl says which and what to set).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import ray
import torch
from torch.distributed import ProcessGroupGloo, TCPStore
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from verl_ext.cpu.buckets import Bucket, Unpacker, pack, pieces_of
from verl_ext.types import BadInput, InfrastructureError


@CheckpointEngineRegistry.register("gloo")
class GlooCheckpointEngine(CheckpointEngine):
    """``actor_rollout_ref.rollout.checkpoint_engine.backend=gloo``.

    Args:
        bucket_size: Bytes of a bucket (``checkpoint_engine.update_weights_bucket_megabytes``).
        is_master: Whether this is trainer rank 0.
        timeout_s: Seconds that one message may take, a receiver's use of the bucket before it included; and that
            processes may take to find each other (``checkpoint_engine.engine_kwargs.gloo.timeout_s``).

    Raises:
        BadInput: A bucket or a timeout of 0 or less.
        InfrastructureError: Of any transfer that fails, on each process that takes part: a peer died, or was silent
            for ``timeout_s``. The next :meth:`prepare` starts afresh.
    """

    def __init__(self, bucket_size: int, is_master: bool = False, timeout_s: float = 300.0) -> None:
        for name, value in (
            ("update_weights_bucket_megabytes", bucket_size),
            ("engine_kwargs.gloo.timeout_s", timeout_s),
        ):
            if not value > 0:
                raise BadInput(f"actor_rollout_ref.rollout.checkpoint_engine.{name}={value} must be greater than 0")
        self.bucket_size = bucket_size
        self.is_master = is_master
        self.timeout_s = timeout_s
        self._rank, self._world_size = -1, 0
        self._store: TCPStore | None = None
        self._group: ProcessGroupGloo | None = None
        self._buffers: tuple[torch.Tensor, ...] = ()
        self._thread: ThreadPoolExecutor | None = None

    def prepare(self) -> dict[str, Any]:
        """Forget whatever is left of an update that failed; rank 0 opens the meeting point and says where it is."""
        self.finalize()
        if not self.is_master:
            return {}
        host = ray.util.get_node_ip_address().strip("[]")
        self._store = TCPStore(host, 0, is_master=True, timeout=self._timeout, wait_for_workers=False)
        return {"host": host, "port": self._store.port}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Trainer rank 0 is 0, rollout workers follow, and the other trainer ranks (-1) stay out."""
        size = 1 + rollout_world_size

        def arguments(ranks: list[int]) -> dict[str, list[Any]]:
            return {"rank": ranks} | {
                name: [value] * len(ranks) for name, value in {"world_size": size, **metadata[0]}.items()
            }

        return arguments([0] + [-1] * (actor_wg_world_size - 1)), arguments(list(range(1, size)))

    def init_process_group(self, rank: int, world_size: int, host: str, port: int) -> None:
        """Meet the other processes of this update; arguments as of :meth:`build_topology`."""
        self._rank, self._world_size = rank, world_size
        if rank < 0:
            return
        try:
            if self._store is None:
                self._store = TCPStore(host, port, is_master=False, timeout=self._timeout)
            self._group = ProcessGroupGloo(self._store, rank, world_size, timeout=self._timeout)
        except RuntimeError as error:
            self.finalize()
            raise self._failed(f"meeting the others at {host}:{port}", error) from error
        self._buffers = tuple(torch.empty(self.bucket_size, dtype=torch.uint8) for _ in range(2))
        self._thread = ThreadPoolExecutor(1, "gloo-weights")

    def finalize(self) -> None:
        """Leave the group, whatever its state, and free the buckets. A peer that still waits for this process fails."""
        if self._group is not None:
            self._group.abort()
        if self._thread is not None:
            self._thread.shutdown(wait=False)
        self._group = self._store = self._thread = None
        self._buffers = ()

    @torch.no_grad()
    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        """Trainer ranks: hand over all weights, and return when every receiver has taken them.

        Ranks other than 0 only walk through ``weights``: gathering one takes part of all of them. For the same reason
        rank 0 walks to the end when a receiver has failed, and only then says so.
        """
        try:
            if self._rank == 0:
                await self._send(weights)
        except BaseException:
            self.finalize()
            raise
        finally:
            for _ in weights:
                pass

    async def _send(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        travelling: asyncio.Future | None = None
        for number, bucket in enumerate(pack(weights, self._buffers)):
            if travelling is not None:
                await travelling
            travelling = self._start(f"sending bucket {number}", self._send_bucket, bucket)
        await travelling
        await self._start("waiting for the last receiver", self._meet)

    @torch.no_grad()
    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Rollout workers: name and tensor of each weight; a tensor is valid until the next one is asked for."""
        unpacker, number = Unpacker(), 0
        try:
            travelling = self._start("receiving bucket 0", self._receive_bucket, 0)
            while True:
                bucket = await travelling
                number += 1
                if not bucket.last:
                    travelling = self._start(f"receiving bucket {number}", self._receive_bucket, number % 2)
                for name, weight in unpacker.weights(bucket):
                    yield name, weight
                if bucket.last:
                    break
            await self._start("telling the sender that all has come", self._meet)
        except BaseException:
            self.finalize()
            raise

    def _start(self, doing: str, step: Callable[..., Any], *args: Any) -> asyncio.Future:
        """Run a blocking step in the thread, at once; gloo's errors get a sentence."""

        def run() -> Any:
            try:
                return step(*args)
            except RuntimeError as error:
                raise self._failed(doing, error) from error

        if self._thread is None:
            raise InfrastructureError("gloo checkpoint engine: no process group; call init_process_group first")
        future: Future = self._thread.submit(run)
        return asyncio.wrap_future(future)

    def _send_bucket(self, bucket: Bucket) -> None:
        description = torch.frombuffer(bytearray(bucket.describe()), dtype=torch.uint8)
        self._broadcast(torch.tensor([description.numel(), bucket.data.numel(), bucket.last]))
        self._broadcast(description)
        self._broadcast(bucket.data)

    def _receive_bucket(self, buffer: int) -> Bucket:
        header = torch.zeros(3, dtype=torch.int64)
        self._broadcast(header)
        described, size, last = header.tolist()
        description = torch.empty(described, dtype=torch.uint8)
        self._broadcast(description)
        data = self._buffers[buffer][:size]
        self._broadcast(data)
        return Bucket(pieces_of(description.numpy().tobytes()), data, bool(last))

    def _broadcast(self, tensor: torch.Tensor) -> None:
        if tensor.numel():
            self._group.broadcast(tensor, 0).wait()

    def _meet(self) -> None:
        self._group.barrier().wait()

    @property
    def _timeout(self) -> timedelta:
        return timedelta(seconds=self.timeout_s)

    def _failed(self, doing: str, error: Exception) -> InfrastructureError:
        cause = " ".join(str(error).split())
        return InfrastructureError(
            f"gloo checkpoint engine, rank {self._rank} of {self._world_size} (0 is the trainer), {doing}: a peer is "
            f"gone or was silent for {self.timeout_s:g} s (checkpoint_engine.engine_kwargs.gloo.timeout_s): {cause}"
        )
