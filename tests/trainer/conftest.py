"""A Ray and a TransferQueue for tests that cannot do without: half a minute to start, so those tests are `e2e`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    import ray

    settings = {"prestart_worker_first_driver": False}
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, _system_config=settings)
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def restart(cluster) -> Iterator[Callable[[], None]]:
    """A TransferQueue; called, it is started anew and empty, as after the death of a run."""
    import transfer_queue as tq

    def start() -> None:
        tq.init({"backend": {"SimpleStorage": {"num_data_storage_units": 1}}})

    def again() -> None:
        tq.close()
        start()

    start()
    yield again
    tq.close()


@pytest.fixture
def queue(restart) -> Iterator[Callable[[], None]]:
    """As ``restart``; what a test puts in is cleared after it."""
    import transfer_queue as tq

    yield restart
    for partition_id, items in (tq.kv_list() or {}).items():
        if items:
            tq.kv_clear(keys=list(items), partition_id=partition_id)


@pytest.fixture(params=["bugfix_grpo", "bugfix_colocate_async"])
def trainer(request, tmp_path, monkeypatch):
    from tests.trainer.checkpoints import trainer_in

    return trainer_in(tmp_path / "run" / "checkpoints", request.param, monkeypatch)
