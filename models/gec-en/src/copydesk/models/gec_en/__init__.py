"""The default model's data: a correction adapter, its chat template and its limits.

`NAME` is what the model is called everywhere; `files()` is where the data lies. The base model's weights are not
here: `copydesk.inference.checkpoint` fetches and merges them.
"""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable

NAME = "gec-en"


def files() -> Traversable:
    """The folder with the adapter (PEFT format), `chat_template.jinja` and `copydesk.json`."""
    return resources.files(__name__)
