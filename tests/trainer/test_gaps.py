"""Gaps between two sources of log-probs, by hand."""

import math

import numpy as np
import pytest

from verl_ext.trainer.gaps import by_segment, by_turn, describe, gap_metrics, row_gaps, worst_sessions
from verl_ext.trainer.turns import Row
from verl_ext.types import BadInput


def row(key, *spans):
    return Row(key, tuple({"index": index, "start": start, "end": end} for index, start, end in spans))


def gaps(key, spans, gap, mask=None):
    return row_gaps(row(key, *spans), np.full(len(gap), -1.0), -1.0 + np.array(gap), mask or [1] * len(gap))


# The first row's token 2 is an observation, whose gap counts nowhere.
FIRST = gaps("g_0_0", [(0, 0, 2), (1, 3, 4)], [0.1, -0.3, 9.0, 0.2], [1, 1, 0, 1])
SECOND = gaps("g_0_1", [(2, 0, 1), (3, 1, 3)], [0.4, 0.0, 0.2])
OTHER = gaps("h_5_0", [(0, 0, 2)], [0.0, 0.1])


def test_by_hand():
    found = gap_metrics([FIRST, SECOND, OTHER], bound=0.35)
    assert found == pytest.approx(
        {
            "exactness/log_prob_gap_max": 0.4,
            "exactness/log_prob_gap_mean": 1.3 / 8,
            "exactness/segment/0/max": 0.3,
            "exactness/segment/0/mean": 0.7 / 5,
            "exactness/segment/1/max": 0.4,
            "exactness/segment/1/mean": 0.6 / 3,
            "exactness/turn/0/max": 0.3,
            "exactness/turn/0/mean": 0.5 / 4,
            "exactness/turn/1/max": 0.2,
            "exactness/turn/1/mean": 0.2,
            "exactness/turn/2/max": 0.4,  # turns 2 and 3
            "exactness/turn/2/mean": 0.6 / 3,
            "exactness/over_bound": 1 / 3,
        }
    )
    assert "exactness/over_bound" not in gap_metrics([FIRST])


def test_positions_fall_into_the_bucket_that_begins_at_or_before_them():
    rows = [gaps(f"g_0_{i}", [(i, 0, 1)], [1.0]) for i in (0, 1, 2, 3, 4, 7, 8, 31, 32, 500)]
    tokens = {first: spread.tokens for first, spread in by_segment(rows).items()}
    assert tokens == {0: 1, 1: 1, 2: 2, 4: 2, 8: 1, 16: 1, 32: 2}
    assert by_turn(rows) == by_segment(rows)


def test_the_worst_session_comes_first_and_counts_once():
    third = gaps("h_6_0", [(0, 0, 1)], [5.0])
    assert worst_sessions([OTHER, FIRST, SECOND, third], 0.25) == [("h", "6"), ("g", "0")]
    assert worst_sessions([OTHER, FIRST], 0.31) == []


@pytest.mark.parametrize(("sampler", "trainer"), [(math.nan, -1.0), (-1.0, math.nan), (-math.inf, -math.inf)])
def test_a_log_prob_that_is_no_number_passes_every_bound(sampler, trainer):
    found = row_gaps(row("g_0_0", (0, 0, 2)), [-1.0, sampler], [-1.0, trainer], [1, 1])
    assert found.whole.largest == math.inf and worst_sessions([found], 1e9) == [("g", "0")]
    assert row_gaps(row("g_0_0", (0, 0, 1)), [-1.0, sampler], [-1.0, trainer], [1, 0]).whole.largest == 0.0


def test_a_policy_token_outside_every_turn_still_counts():
    found = gaps("g_0_0", [(0, 0, 1)], [0.0, 0.7])
    assert found.whole.largest == pytest.approx(0.7) and by_turn([found])[0].largest == 0.0


def test_a_row_without_policy_tokens_has_no_gap():
    nothing = gaps("g_0_0", [(0, 0, 2)], [5.0, 5.0], [0, 0])
    assert gap_metrics([nothing], 1e-4) == {} and worst_sessions([nothing], 1e-4) == []
    assert gap_metrics([nothing, OTHER], 1e-4)["exactness/over_bound"] == 0.5


def test_description_is_plain():
    assert describe(OTHER) == {
        "max": pytest.approx(0.1),
        "mean": pytest.approx(0.05),
        "tokens": 2,
        "turns": [{"index": 0, "max": pytest.approx(0.1), "mean": pytest.approx(0.05), "tokens": 2}],
    }


def test_columns_that_do_not_fit_name_the_session():
    with pytest.raises(BadInput, match="session g_0_0: log-probs of two sources and mask have 2, 3, 3 entries"):
        row_gaps(row("g_0_0", (0, 0, 2)), [0, 0], [0, 0, 0], [1, 1, 1])
    with pytest.raises(BadInput, match="session g_0_0, turn 4 ends at token 9, after the response"):
        row_gaps(row("g_0_0", (4, 0, 9)), [0, 0], [0, 0], [1, 1])
