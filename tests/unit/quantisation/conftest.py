from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.fixtures.tiny_model import write_tiny_model


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Products of tiny matrices take longer to share out than to compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tiny model in bfloat16 that ends every answer at once."""
    return write_tiny_model(tmp_path / "original", dtype="bfloat16", always_stops=True)
