"""Checkpoints: how a model directory comes to be, and what names its weights.

Nothing here imports torch. The default model is made from a quantised base (GGUF) and a correction adapter;
what is written is an ordinary Hugging Face directory, so that every engine reads it the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from copydesk.inference.checkpoint.manifest import read_digest

if TYPE_CHECKING:
    from copydesk.inference.checkpoint.prepare import (
        default_model_directory,
        prepare_default_model,
        verify_default_model,
    )

__all__ = ["default_model_directory", "prepare_default_model", "read_digest", "verify_default_model"]


def __getattr__(name: str) -> Any:
    """Import the making of models once it is asked for: workers only read digests, and stay small."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from copydesk.inference.checkpoint import prepare

    return getattr(prepare, name)
