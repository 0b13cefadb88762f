import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """On a busy machine a second one waits ten times as long as it works."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
