"""Checkpoints: how a model directory comes to be, and what names its weights.

Nothing here imports torch. The default model is made from a quantised base (GGUF) and a correction adapter;
what is written is an ordinary Hugging Face directory, so that every engine reads it the same way.
"""

from copydesk.inference.checkpoint.manifest import read_digest
from copydesk.inference.checkpoint.prepare import (
    default_model_directory,
    prepare_default_model,
    verify_default_model,
)

__all__ = ["default_model_directory", "prepare_default_model", "read_digest", "verify_default_model"]
