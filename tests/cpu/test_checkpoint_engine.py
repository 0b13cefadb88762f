"""The gloo checkpoint engine, with real processes and real gloo: the same bits at both ends, in bounded memory, and no
peer waits for a dead one."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("verl")

from tests.cpu.peers import Peers, identity, weights
from verl_ext.cpu.checkpoint_engine import GlooCheckpointEngine
from verl_ext.types import BadInput

MB = 1 << 20
ODD = [
    ("embed", "float32", (40, 8)),
    ("scale", "bfloat16", (7,)),
    ("quantised", "int8", (3, 5)),
    ("after an odd number of bytes", "float64", (2, 2)),
    ("flags", "bool", (5,)),
    ("scalar", "float32", ()),
    ("nothing", "bfloat16", (0, 4)),
    ("half", "float16", (1, 2, 3)),
    ("count", "int64", (9,)),
    ("eighth", "float8_e4m3fn", (11,)),
]


def sent(spec, seed=0):
    return [identity(name, weight) for name, weight in weights(spec, seed)]


@pytest.mark.parametrize(("trainers", "rollouts"), [(1, 1), (1, 3), (2, 1), (2, 3)])
def test_the_same_bits_arrive_at_every_replica_update_after_update(trainers, rollouts):
    with Peers(trainers, rollouts, bucket_size=4096, timeout_s=30) as peers:
        for seed in range(2):
            _, received = peers.update(ODD, seed)
            assert [weights for _, (weights, _) in received] == [sent(ODD, seed)] * rollouts


@pytest.mark.parametrize("bucket", [16, 100, 1280, 1281])
def test_a_bucket_smaller_than_a_weight_and_one_that_just_fits(bucket):
    """1280 bytes is the largest one; at 100 a number lies across two buckets."""
    with Peers(1, 1, bucket_size=bucket, timeout_s=30) as peers:
        _, received = peers.update(ODD)
        assert received[0][1][0] == sent(ODD)


@pytest.mark.parametrize("spec", [[], [("full", "int8", (64,))], [("two", "int8", (64,)), ("full", "int8", (64,))]])
def test_no_weights_and_full_buckets(spec):
    with Peers(1, 2, bucket_size=64, timeout_s=30) as peers:
        _, received = peers.update(spec)
        assert [weights for _, (weights, _) in received] == [sent(spec)] * 2


def test_memory_is_bounded_by_two_buckets_at_both_ends():
    """128 MB of weights through buckets of 8 MB, counted by the kernel; a sender holds a weight or two beside."""
    spec = [(f"layer.{number}", "float32", (512, 2048)) for number in range(32)]
    with Peers(1, 2, bucket_size=8 * MB, timeout_s=60) as peers:
        peers.update(spec[:2])  # a process's first use of anything touches memory of its own
        senders, receivers = peers.update(spec)
    weight, slack = 4 * MB, 8 * MB
    for peak in [senders[0][1], *(peak for _, (_, peak) in receivers)]:
        assert peak < 2 * 8 * MB + 2 * weight + slack


def test_replicas_come_and_go_between_updates():
    with Peers(1, 2, bucket_size=4096, timeout_s=30) as peers:
        peers.update(ODD, 0)
        peers.kill_rollout(0)
        peers.update(ODD, 1)
        peers.add_rollout()
        peers.add_rollout()
        _, received = peers.update(ODD, 2)
        assert [weights for _, (weights, _) in received] == [sent(ODD, 2)] * 3


LARGE = [(f"layer.{number}", "float32", (256, 1024)) for number in range(8)]


@pytest.mark.parametrize("trainers", [1, 2])
def test_a_receiver_that_dies_is_an_error_at_once_for_all_others_and_the_next_update_works(trainers):
    with Peers(trainers, 2, bucket_size=MB, timeout_s=30) as peers:
        started = time.monotonic()
        senders, receivers = peers.update(LARGE, die_at=1)
        assert time.monotonic() - started < 25
        assert receivers[0] == (False, "dead")
        for ok, says in [senders[0], receivers[1]]:
            assert not ok and "InfrastructureError: gloo checkpoint engine, rank " in says and "a peer is gone" in says
            assert "timeout_s" in says and "\n" not in says
        assert [ok for ok, _ in senders[1:]] == [True] * (trainers - 1)  # they were not left in the gather
        peers.kill_rollout(0)
        _, received = peers.update(LARGE, 1)
        assert received[0][1][0] == sent(LARGE, 1)


def test_a_receiver_whose_server_refuses_a_weight_takes_the_others_out_of_their_wait():
    with Peers(1, 2, bucket_size=MB, timeout_s=30) as peers:
        started = time.monotonic()
        senders, receivers = peers.update(LARGE, stop_at=1)
        assert time.monotonic() - started < 25
        assert receivers[0] == (False, "ValueError: the server refused this weight")
        assert "a peer is gone" in senders[0][1] and "a peer is gone" in receivers[1][1]
        _, received = peers.update(LARGE, 1)
        assert [weights for _, (weights, _) in received] == [sent(LARGE, 1)] * 2


def test_a_silent_peer_is_an_error_after_the_timeout():
    with Peers(1, 1, bucket_size=MB, timeout_s=2) as peers:
        assert all(ok for ok, _ in peers.meet())
        started = time.monotonic()
        ((ok, says),) = peers.ask([(peers.rollouts[0], "receive", {})], within_s=20)  # nobody sends
        assert not ok and "receiving bucket 0" in says and "silent for 2 s" in says
        assert time.monotonic() - started < 15


def test_a_peer_that_never_comes_is_an_error_after_the_timeout():
    with Peers(1, 1, bucket_size=MB, timeout_s=2) as peers:
        ((_, where),) = peers.ask([(peers.trainers[0], "prepare", {})])
        join = {"rank": 0, "world_size": 2, **where}
        ((ok, says),) = peers.ask([(peers.trainers[0], "init_process_group", join)], within_s=30)
        assert not ok and "meeting the others at" in says


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"bucket_size": 0}, "checkpoint_engine.update_weights_bucket_megabytes=0 must be greater than 0"),
        ({"bucket_size": 1, "timeout_s": 0}, "checkpoint_engine.engine_kwargs.gloo.timeout_s=0 must be greater than 0"),
    ],
)
def test_settings_are_checked(settings, says):
    with pytest.raises(BadInput, match=says):
        GlooCheckpointEngine(**settings)
