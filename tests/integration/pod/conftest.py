import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from tests.fixtures.tiny_model import EOS_ID, write_tiny_model


@pytest.fixture(scope="session")
def silent_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that ends every answer at once, which leaves each sentence as it is."""
    return write_tiny_model(tmp_path_factory.mktemp("silent"), seed=1, always_stops=True)


@pytest.fixture(scope="session")
def talkative_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers run to 400 tokens: a few tenths of a second."""
    directory = write_tiny_model(tmp_path_factory.mktemp("talkative"), seed=2, context=1024)
    return _let_run(directory, tokens=400)


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers take longer than any test waits, unless they are ended."""
    directory = write_tiny_model(tmp_path_factory.mktemp("endless"), seed=3, context=100_000)
    return _let_run(directory, tokens=90_000)


def _let_run(directory: Path, tokens: int) -> Path:
    """Raise the limit of an answer, and see to it that nothing but the limit ends one."""
    weights = load_file(directory / "model.safetensors")
    weights["lm_head.weight"][EOS_ID] = 0.0
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "copydesk.json").write_text(json.dumps({"max_tokens_extra": tokens}))
    return directory
