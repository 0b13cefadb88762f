"""Wire format and comparison: examples, properties, and every pair of a table of look-alikes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_ext.sandbox.wire import MAX_DEPTH, WireError, agree, decode, dumps, encode, loads

_KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
_VALUES = st.recursive(
    _KEYS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(_KEYS, inner, max_size=4)
        | st.sets(_KEYS, max_size=4)
    ),
    max_leaves=12,
)


@given(_VALUES)
@settings(max_examples=60, deadline=None)
def test_round_trip_keeps_type_and_value(value):
    back = decode(loads(dumps(encode(value))))
    assert type(back) is type(value)
    assert agree(back, value)
    assert encode(back) == encode(value)


LOOK_ALIKES = [
    None, False, True, 0, 1, 2, 1.0, 2.0, 0.5, "", "1", "a", b"", b"a", [], [1], [1.0], [True], (), (1,), (1.0,), {},
    {1: 2}, {1.0: 2}, {True: 2}, {"1": 2}, {1: 2.0}, set(), {1}, {1.0}, {True}, frozenset(), frozenset({1}), [[1]],
    [(1,)],
    float("inf"), float("-inf"), float("nan"), {(1,): 1}, {(1.0,): 1}, {(True,): 1}, "\ud83d\ude00", "😀",
]  # fmt: skip


def test_exact_tells_all_look_alikes_apart():
    wire = [decode(json.loads(json.dumps(encode(value)))) for value in LOOK_ALIKES]
    for i, got in enumerate(wire):
        for j, expected in enumerate(LOOK_ALIKES):
            assert agree(got, expected) == (i == j), (got, expected)


@pytest.mark.parametrize(
    ("got", "expected", "compare", "tolerance", "answer"),
    [
        (2, 2.0, "numeric", 0, True),
        (True, 1, "numeric", 0, False),
        (2.1, 2.0, "numeric", 0, False),
        ([1.0, (2,)], [1, (2.0,)], "numeric", 0, True),
        ({1.0}, {1}, "numeric", 0, True),
        ({1.0: 2}, {1: 2.0}, "numeric", 0, True),
        (2.05, 2, "tolerance", 0.1, True),
        (2.15, 2, "tolerance", 0.1, False),
        (float("nan"), 1.0, "tolerance", 1e9, False),
        (float("inf"), 1.0, "tolerance", float("inf"), False),
        (10**400, 1.0, "tolerance", 1.0, False),
        (10**400, float("inf"), "tolerance", 1.0, False),
        ("a", "a", "tolerance", 1.0, True),
        (-0.0, 0.0, "exact", 0, True),
    ],
)
def test_loose_comparison(got, expected, compare, tolerance, answer):
    assert agree(got, expected, compare, tolerance) is answer


def test_unknown_comparison_is_refused():
    with pytest.raises(ValueError, match="must be exact"):
        agree(1, 1, "fuzzy")


class _Always(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


def _deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [_Always(3), object(), 1j, range(3), [1 << 20_000], [_Always(1)], {_Always(1): 0}])
def test_other_types_do_not_leave(value):
    with pytest.raises(WireError):
        encode(value)


def test_depth_and_cycles():
    assert decode(encode(_deep(MAX_DEPTH - 1))) == _deep(MAX_DEPTH - 1)
    with pytest.raises(WireError, match="deep"):
        encode(_deep(MAX_DEPTH + 1))
    cycle = []
    cycle.append(cycle)
    with pytest.raises(WireError, match="deep"):
        encode(cycle)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 900_000,
        b"NaN",
        b"1e999",
        b"1" * 5000,
        b'{"$":"tuple"}',
        b'{"$":"set","v":[[1]]}',
        b'{"$":"os.system","v":"ls"}',
        b'{"$":"dict","v":[[1]]}',
        b'{"$":"bytes","v":"zz"}',
        b'{"$":["tuple"],"v":[]}',
        b'{"a":1}',
        b"{",
        b"\xff",
        b'{"$":"set","v":[' + b",".join(b"%d" % (i * (2**61 - 1)) for i in range(1, 2000)) + b"]}",
    ],
)
def test_hostile_lines_are_refused(line):
    with pytest.raises(WireError):
        decode(loads(line))


def test_size_limit():
    with pytest.raises(WireError, match="limit"):
        loads(b'"' + b"a" * 100 + b'"', max_bytes=50)


def test_equal_sets_have_equal_text():
    names = [f"name{i}" for i in range(50)]
    assert dumps(encode(set(names))) == dumps(encode(set(reversed(names))))
