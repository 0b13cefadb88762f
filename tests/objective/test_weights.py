"""Which rows verl trains together, and that weights are matched within each such mini-batch."""

import inspect
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict
from verl.protocol import BatchData
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import TrainingWorker

from verl_ext.objective.settings import EntropyConfig
from verl_ext.objective.weights import bonus_weights, mini_batches


def rows_that_verl_trains_together(rows, dp_size, mini_batch_size, shuffle, seed):
    """verl's dispatch and its ``train_mini_batch`` with everything but the grouping left out."""
    found = {}
    for rank, of_rank in enumerate(BatchData(TensorDict({"row": torch.arange(rows)}, batch_size=rows)).chunk(dp_size)):
        groups = []
        worker = SimpleNamespace(
            engine=SimpleNamespace(
                get_data_parallel_size=lambda: dp_size,
                get_data_parallel_rank=lambda rank=rank: rank,
                train_mode=lambda **_: nullcontext(),
                is_mp_src_rank_with_outputs=lambda: False,
            ),
            profiler=SimpleNamespace(step=lambda: None),
            train_batch=lambda data, groups=groups: groups.append(data["row"].tolist()),
        )
        of_rank = of_rank.clone()  # unlocked
        tu.assign_non_tensor(
            of_rank, mini_batch_size=mini_batch_size, epochs=1, seed=seed, dataloader_kwargs={"shuffle": shuffle}
        )
        inspect.unwrap(TrainingWorker.train_mini_batch)(worker, of_rank)
        for number, group in enumerate(groups):
            found.setdefault(number, set()).update(group)
    return found


@pytest.mark.parametrize(("rows", "dp_size", "size"), [(24, 1, 24), (24, 1, 8), (24, 2, 8), (24, 4, 12), (12, 3, 3)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_mini_batches_are_those_that_verl_trains(rows, dp_size, size, shuffle):
    found = mini_batches(rows, dp_size, size, shuffle=shuffle, seed=42)
    expected = rows_that_verl_trains_together(rows, dp_size, size, shuffle, 42)
    assert {number: set(torch.nonzero(found == number).flatten().tolist()) for number in expected} == expected
    assert len(expected) == rows // size


def test_weights_match_within_each_mini_batch_and_not_only_over_the_step():
    mask = torch.tensor([[1, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]])
    together = torch.tensor([0, 0, 1, 2])
    settings = EntropyConfig(where="after_observation", coeff=0.5, tokens=1)
    weight, metrics = bonus_weights(settings, 1, mask, mask, together, "token-mean")
    assert weight.tolist() == [[0, 0, 1.25, 0], [0, 0, 1.25, 0], [0, 0.5, 0, 0.5], [0, 0, 0, 0]]
    assert metrics == pytest.approx(
        {"entropy/bonus/coeff": 0.5, "entropy/bonus/factor": (2.5 + 1 + 0) / 3, "entropy/bonus/token_share": 4 / 11}
    )


def test_rows_weigh_alike_where_the_aggregation_says_so():
    mask = torch.tensor([[1, 0, 1, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]])
    settings = EntropyConfig(where="after_observation", coeff=0.6, tokens=1)
    weight, _ = bonus_weights(settings, 1, mask, mask, torch.zeros(4, dtype=torch.int64), "seq-mean-token-mean")
    assert torch.allclose(weight[weight > 0], torch.tensor(0.6 * 4 / 3))


def test_nested_and_padded_columns_agree():
    mask = torch.tensor([[1, 0, 1, 1], [1, 0, 1, 0]])
    nested = torch.nested.as_nested_tensor([mask[0], mask[1, :3]], layout=torch.jagged)
    settings = EntropyConfig(where="after_observation", coeff=1.0, tokens=1)
    together = torch.zeros(2, dtype=torch.int64)
    padded, _ = bonus_weights(settings, 1, mask, mask, together, "token-mean")
    column, _ = bonus_weights(settings, 1, nested, nested, together, "token-mean")
    assert column.to_padded_tensor(0.0).tolist() == padded.tolist()
    assert column.dtype == torch.float32
