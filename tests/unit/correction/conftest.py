"""Model directories of which a corrector reads everything but the weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.tiny_model import write_tiny_model

Edit = Callable[[str, Callable[[dict[str, Any]], None]], None]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model", layers=1)


@pytest.fixture
def edit_json(model: Path) -> Edit:
    """Change a JSON file of the model; a missing one starts empty."""

    def edit(name: str, change: Callable[[dict[str, Any]], None]) -> None:
        path = model / name
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        change(content)
        path.write_text(json.dumps(content), encoding="utf-8")

    return edit
