"""Weights to buckets and back, without processes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from verl_ext.cpu.buckets import Bucket, Unpacker, pack, pieces_of
from verl_ext.types import InfrastructureError


def travelled(weights, size):
    """As over the wire: each bucket is unpacked before the buffer is used again."""
    buffers = (torch.empty(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8))
    unpacker, got, buckets = Unpacker(), [], []
    for bucket in pack(weights, buffers):
        assert bucket.data.numel() <= size
        arrived = Bucket(pieces_of(bucket.describe()), bucket.data, bucket.last)
        got += [(name, weight.clone()) for name, weight in unpacker.weights(arrived)]
        buckets.append(replace(arrived, data=arrived.data.clone()))
    return got, buckets


@pytest.mark.parametrize("size", [16, 40, 64, 1000])
def test_any_stride_and_a_gradient(size):
    weights = [
        ("t", torch.arange(12.0).view(3, 4).t()),
        ("p", torch.nn.Parameter(torch.ones(5))),
        ("s", torch.ones(8)[::2]),
    ]
    got, _ = travelled(weights, size)
    assert [name for name, _ in got] == ["t", "p", "s"]
    assert all(torch.equal(weight, sent.detach()) for (_, weight), (_, sent) in zip(got, weights, strict=True))


def test_a_weight_that_fits_is_never_split():
    _, buckets = travelled([("a", torch.ones(10)), ("b", torch.ones(10)), ("c", torch.ones(30))], 64)
    assert [[(p.name, p.start, p.size) for p in bucket.pieces] for bucket in buckets] == [
        [("a", 0, 40)],
        [("b", 0, 40)],
        [("c", 0, 64)],
        [("c", 64, 56)],
    ]
    assert [bucket.last for bucket in buckets] == [False, False, False, True]


def test_a_missing_part_is_an_error_that_names_the_weight():
    _, (first, second, third) = travelled([("large", torch.ones(40))], 64)
    unpacker = Unpacker()
    list(unpacker.weights(first))
    with pytest.raises(InfrastructureError, match="weight large: byte 128 came after byte 64"):
        list(unpacker.weights(third))
    unpacker = Unpacker()
    list(unpacker.weights(first))
    with pytest.raises(InfrastructureError, match="the weights ended after byte 128 of large"):
        list(unpacker.weights(replace(second, last=True)))
