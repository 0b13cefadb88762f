"""Weights as a stream of byte buckets of bounded size, and back. Pure; no verl, no processes.

A weight that fits into a bucket is never split, so that its receiver needs no copy; a larger one fills bucket after
bucket. Memory is that of two buckets on each side, and one whole weight where it is larger than a bucket.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from verl_ext.types import InfrastructureError

_ALIGN = 16
"""Bytes: a view of a buffer as numbers must start at a multiple of their size, and no dtype is larger."""


@dataclass(frozen=True)
class Piece:
    """A stretch of one weight in a bucket.

    Attributes:
        name, dtype, shape: Of the whole weight; the dtype as torch names it, e.g. ``bfloat16``.
        start, size: Bytes of the weight that are here.
        at: Where in the bucket, in bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int
    at: int

    @property
    def total(self) -> int:
        """Bytes of the whole weight."""
        return torch.Size(self.shape).numel() * getattr(torch, self.dtype).itemsize


@dataclass(frozen=True)
class Bucket:
    """What travels at once: ``data`` [bytes] uint8, what lies in it, and whether it is the last of its stream."""

    pieces: tuple[Piece, ...]
    data: torch.Tensor
    last: bool

    def describe(self) -> bytes:
        """``pieces`` as JSON."""
        return json.dumps([[p.name, p.dtype, p.shape, p.start, p.size, p.at] for p in self.pieces]).encode()


def pieces_of(description: bytes) -> tuple[Piece, ...]:
    """The inverse of :meth:`Bucket.describe`."""
    return tuple(Piece(name, dtype, tuple(shape), *rest) for name, dtype, shape, *rest in json.loads(description))


def pack(weights: Iterable[tuple[str, torch.Tensor]], buffers: tuple[torch.Tensor, torch.Tensor]) -> Iterator[Bucket]:
    """Copy weights into the two buffers in turn, and yield each as it is full; the last bucket may be empty.

    A bucket is overwritten when the next but one is asked for.

    Args:
        weights: Name and tensor, of any dtype, shape and stride.
        buffers: Two of equal size, uint8.
    """
    capacity, turn, end, pieces = buffers[0].numel(), 0, 0, []
    for name, weight in weights:
        data = weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        dtype = str(weight.dtype).removeprefix("torch.")
        for start in range(0, max(data.numel(), 1), capacity):
            part = data[start : start + capacity]
            at = -(-end // _ALIGN) * _ALIGN
            if at + part.numel() > capacity:
                yield Bucket(tuple(pieces), buffers[turn][:end], last=False)
                turn, at, pieces = 1 - turn, 0, []
            buffers[turn][at : at + part.numel()] = part
            pieces.append(Piece(name, dtype, tuple(weight.shape), start, part.numel(), at))
            end = at + part.numel()
    yield Bucket(tuple(pieces), buffers[turn][:end], last=True)


class Unpacker:
    """Weights from the buckets of one stream, in order."""

    def __init__(self) -> None:
        self._whole = torch.empty(0, dtype=torch.uint8)
        self._have = 0

    def weights(self, bucket: Bucket) -> Iterator[tuple[str, torch.Tensor]]:
        """Name and tensor of each weight that ends in this bucket; most are views of it, so use them at once.

        Raises:
            InfrastructureError: A part of a weight is missing.
        """
        for piece in bucket.pieces:
            data = bucket.data[piece.at : piece.at + piece.size]
            if piece.start != self._have:
                raise InfrastructureError(f"weight {piece.name}: byte {piece.start} came after byte {self._have}")
            if piece.size < piece.total:
                if piece.start == 0:
                    self._whole = torch.empty(piece.total, dtype=torch.uint8)
                self._whole[piece.start : piece.start + piece.size] = data
                self._have += piece.size
                if self._have < piece.total:
                    continue
                data, self._have, self._whole = self._whole, 0, self._whole[:0]
            yield piece.name, data.view(getattr(torch, piece.dtype)).view(piece.shape)
        if bucket.last and self._have:
            raise InfrastructureError(f"the weights ended after byte {self._have} of {bucket.pieces[-1].name}")
