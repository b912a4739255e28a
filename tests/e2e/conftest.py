"""Fleets for end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.inference.checkpoint import prepare_default_model
from tests.fixtures.fleet import Fleet, running_fleet
from tests.fixtures.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers fast and with noise, for tests in which only the fleet matters."""
    directory = tmp_path_factory.mktemp("models") / "tiny"
    write_tiny_model(directory, seed=1)
    return directory


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model, prepared in the user's cache if it is not there yet."""
    return prepare_default_model()


@pytest.fixture(scope="module")
def lasting_fleet(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Fleet]:
    """The same for all tests of a module that leave it as whole as they found it."""
    with running_fleet(tmp_path_factory.mktemp("lasting") / "fleet", "--model", str(tiny_model)) as fleet:
        yield fleet


@pytest.fixture
def tiny_fleet(tmp_path: Path, tiny_model: Path) -> Iterator[Fleet]:
    """A fleet of two pods with the tiny model, of this test's own."""
    with running_fleet(tmp_path / "fleet", "--model", str(tiny_model)) as fleet:
        yield fleet
