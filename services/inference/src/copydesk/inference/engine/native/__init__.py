"""The native engine: torch, Llama-family decoders, continuous batching.

From data to device: `generation` (one request), `draft` (guesses at its tokens), `schedule` (who runs), `layout`
(how a step is arranged), `step` (its tensors), `decoder` over `weights` and `cache`, `runner`; `engine` ties them
together, `opening` sizes it.
"""

from copydesk.inference.engine.native.engine import NativeEngine
from copydesk.inference.engine.native.errors import (
    InvalidOptionError,
    MissingTensorError,
    ModelError,
    TensorMismatchError,
    UnreadableModelError,
    UnsupportedModelError,
)
from copydesk.inference.engine.native.opening import DRAFT_TOKENS, NativeOptions, open_engine
from copydesk.inference.engine.native.precision import Precision

__all__ = [
    "DRAFT_TOKENS",
    "InvalidOptionError",
    "MissingTensorError",
    "ModelError",
    "NativeEngine",
    "NativeOptions",
    "Precision",
    "TensorMismatchError",
    "UnreadableModelError",
    "UnsupportedModelError",
    "open_engine",
]
