"""The native engine: Llama-family decoders, continuous batching, drafting.

Decisions: `generation` (one request), `draft` (guesses at its tokens), `schedule` (who runs); `engine` ties them
together in Python, and `compiled_engine` has the same in C++. Devices: `runner` is torch's (`layout`, how a step
is arranged; `step`, its tensors; `decoder` over `weights` and `cache`), `torch_device` the same for the compiled
engine (`flat_layout`), the 8-bit one is `int8`. `weights` are read by `checkpoint` and become `maps`, plain
(`linear`) or in `fp8`; `tensors` reads the same without torch, and `scales` is what both hold 8 bits to. `opening`
chooses and sizes. Only what serves with torch imports it.
"""

from copydesk.inference.engine.native.compiled_engine import CompiledEngine
from copydesk.inference.engine.native.engine import NativeEngine
from copydesk.inference.engine.native.errors import (
    InvalidOptionError,
    MissingTensorError,
    ModelError,
    TensorMismatchError,
    UnreadableModelError,
    UnsupportedModelError,
)
from copydesk.inference.engine.native.opening import DRAFT_TOKENS, Core, NativeOptions, open_engine
from copydesk.inference.engine.native.precision import Precision

__all__ = [
    "DRAFT_TOKENS",
    "CompiledEngine",
    "Core",
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
