"""One thread: the machine is shared, and the tests are of what happens, not of how fast."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)


@pytest.fixture
def cpu():
    import torch

    return torch.device("cpu")
