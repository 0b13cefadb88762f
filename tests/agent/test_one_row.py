"""verl's older entry points take a session as one row, and not as a list of rows."""

from __future__ import annotations

from tests.agent.test_loop import FIX, SUBMIT, configuration, play_rows, tokenizer  # noqa: F401  a fixture


async def test_older_entry_points_get_the_row_itself(tokenizer):  # noqa: F811
    config = configuration()
    (row,), _ = await play_rows(tokenizer, [FIX, SUBMIT], config)
    config.rollout = {"nnodes": 1, "n_gpus_per_node": 1}  # the key that tells verl.experimental.one_step_off_policy
    alone, _ = await play_rows(tokenizer, [FIX, SUBMIT], config)
    assert alone.response_ids == row.response_ids and alone.response_mask == row.response_mask
