"""From a model directory to an engine that has proved it runs."""

from __future__ import annotations

import ctypes
import enum
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copydesk.common.rpc.frames import Priority
from copydesk.common.telemetry import get_logger
from copydesk.inference.engine.compiled import CompiledLibraryError, load_library
from copydesk.inference.engine.interface import GeneratedTokens, GenerateTokens
from copydesk.inference.engine.native.compiled_engine import CompiledEngine
from copydesk.inference.engine.native.config import ModelConfig, read_config
from copydesk.inference.engine.native.devices import (
    Device,
    NullDevice,
    OverlappingNullDevice,
    Runner,
    RunnerDevice,
)
from copydesk.inference.engine.native.engine import NativeEngine
from copydesk.inference.engine.native.errors import InvalidOptionError
from copydesk.inference.engine.native.generation import room_in_cache
from copydesk.inference.engine.native.int8.decoder import PORTABLE, Int8Decoder, best_kernels
from copydesk.inference.engine.native.null_runner import NullRunner
from copydesk.inference.engine.native.precision import Precision, computes_fp8, torch_dtype

if TYPE_CHECKING:
    import torch

    from copydesk.inference.engine.native.runner import TorchRunner

_log = get_logger(__name__)

DRAFT_TOKENS = 192
"""Measured on two cores: whether 1 or 64 requests run side by side, no other number serves them much faster."""

GRAPHS = 256
"""Enough for every step of 64 slots with 512 positions each."""

_MOST = 1 << 20  # of anything; what is more is a mistake
_NULL_DEVICE = re.compile(r"null(-async)?:(\d+(?:\.\d+)?)")


class Core(enum.StrEnum):
    """What schedules: the compiled engine, or the one in Python; `AUTO` is the first where it can be had."""

    AUTO = "auto"
    COMPILED = "compiled"
    PYTHON = "python"


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """How an engine is sized, and what it runs on.

    `slots` requests run side by side, `queue` more wait, each of `context` tokens at most. Together those that run
    never need the cache for more than `cache_tokens` (0: what all slots can hold, or half of it where the decoder
    gives unused memory back); who might is kept waiting. `prefill_tokens` bounds
    the prompt tokens of one step: it trades the start of new requests against the pace of running ones; 256 take
    about as long as a decode step of a full batch. Drafts fill a step up to `draft_tokens` tokens of those who
    decode, so that there are the fewer the more requests run; 0 drafts nothing. `threads` is for the whole
    process; 0 is one, or what torch finds. `device` is torch's name for one, or `null:MS`, which computes nothing
    in MS milliseconds a step; `null-async:MS` does so beside the engine. `asynchronous` lets a step begin before
    the results of the last one have been dealt with, and on a device beside the engine before they are there.
    `graphs` is how many sizes of steps are prepared as CUDA graphs; None is `GRAPHS` on a GPU, and on a processor,
    where the same code runs without capturing anything, none. `compiled_inputs` has the inputs of padded steps
    made in C++; in Python they are made for comparison.
    """

    precision: Precision = Precision.AUTO
    slots: int = 64
    context: int = 512
    queue: int = 256
    cache_tokens: int = 0
    prefill_tokens: int = 256
    draft_tokens: int = DRAFT_TOKENS
    threads: int = 0
    device: str = "cpu"
    core: Core = Core.AUTO
    asynchronous: bool = True
    graphs: int | None = None
    compiled_inputs: bool = True


def open_engine(directory: Path, options: NativeOptions | None = None) -> NativeEngine | CompiledEngine:
    """Load the Hugging Face model in `directory` and run it once, so that the first request finds it warm.

    Raises:
        ModelError: the directory holds no model that this engine serves, or the options do not fit it.
    """
    options = options or NativeOptions()
    config = read_config(directory)
    _check(options, config)
    library = _library(options)
    precision = _precision(options, library)
    engine = _engine(directory, config, options, precision, library)
    _warm_up(engine)
    return engine


def _library(options: NativeOptions) -> ctypes.CDLL | None:
    """Load the compiled half, unless the options can do without and it is not to be had."""
    needed = options.core is Core.COMPILED or options.precision is Precision.INT8
    if options.core is Core.PYTHON and options.precision not in {Precision.AUTO, Precision.INT8}:
        return None
    try:
        return load_library()
    except CompiledLibraryError as error:
        if needed:
            option, value = ("core", "compiled") if options.core is Core.COMPILED else ("precision", "int8")
            raise InvalidOptionError(option, value, f"another, since {error}") from error
        _log.warning("compiled_library_missing", reason=error.reason, advice=error.advice)
        return None


def _precision(options: NativeOptions, library: ctypes.CDLL | None) -> Precision:
    if options.precision is Precision.INT8 and options.device != "cpu":
        others = "auto, fp8, bfloat16 or float32"
        raise InvalidOptionError("precision", "int8", f"{others} on {options.device}: int8 is for processors")
    if options.precision is not Precision.AUTO or options.device != "cpu" or library is None:
        return options.precision
    return Precision.AUTO if best_kernels(library) == PORTABLE else Precision.INT8


def _engine(
    directory: Path, config: ModelConfig, options: NativeOptions, precision: Precision, library: ctypes.CDLL | None
) -> NativeEngine | CompiledEngine:
    runner: Runner | None = None
    device: Device
    cache_tokens = room_in_cache(_cache_tokens(options, precision), options.slots, options.context)
    null = _NULL_DEVICE.fullmatch(options.device)
    if null is not None:
        runner, device = _null(float(null[2]) / 1000, config, library, beside=null[1] is not None)
    elif precision is Precision.INT8 and library is not None:
        runner = device = Int8Decoder(
            library,
            directory,
            config,
            slots=options.slots,
            context=options.context,
            threads=options.threads or 1,
            cache_tokens=cache_tokens,
        )
    else:
        runner, device = _torch(directory, config, options, precision, library)
    sizes: dict[str, Any] = {
        "vocabulary": config.vocabulary,
        "slots": options.slots,
        "context": options.context,
        "queue": options.queue,
        "cache_tokens": cache_tokens,
        "prefill_tokens": options.prefill_tokens,
        "draft_tokens": options.draft_tokens,
    }
    if options.core is Core.PYTHON or library is None:
        return NativeEngine(runner, **sizes)
    return CompiledEngine(library, device, **sizes, asynchronous=options.asynchronous)


def _cache_tokens(options: NativeOptions, precision: Precision) -> int | None:
    if options.cache_tokens or precision is not Precision.INT8:
        return options.cache_tokens or None
    return options.slots * options.context // 2


def _null(
    seconds: float, config: ModelConfig, library: ctypes.CDLL | None, *, beside: bool
) -> tuple[Runner, Device]:
    runner = NullRunner(seconds, config.vocabulary)
    if library is None:
        return runner, RunnerDevice(runner, config.vocabulary)
    kind = OverlappingNullDevice if beside else NullDevice
    return runner, kind(library, seconds=seconds, vocabulary=config.vocabulary)


def _torch(
    directory: Path, config: ModelConfig, options: NativeOptions, precision: Precision, library: ctypes.CDLL | None
) -> tuple[Runner, Device]:
    import torch

    from copydesk.inference.engine.native.runner import TorchRunner
    from copydesk.inference.engine.native.torch_device import TorchDevice

    if options.threads:
        torch.set_num_threads(options.threads)
    device = _torch_device(options.device)
    graphs = _graphs(options, device) if library is not None and options.core is not Core.PYTHON else 0
    runner = TorchRunner(
        directory,
        config,
        slots=options.slots,
        context=options.context,
        dtype=torch_dtype(precision, device),
        device=device,
        fp8=computes_fp8(precision, device, config.quantisation),
        spare=graphs > 0,
    )
    if library is None:
        return runner, RunnerDevice(runner, config.vocabulary)
    return runner, _padding_device(library, runner, options, graphs) if graphs else TorchDevice(library, runner)


def _graphs(options: NativeOptions, device: torch.device) -> int:
    if options.graphs is not None:
        return options.graphs
    return GRAPHS if device.type == "cuda" else 0


def _padding_device(library: ctypes.CDLL, runner: TorchRunner, options: NativeOptions, graphs: int) -> Device:
    from copydesk.inference.engine.native.cuda.backend import GpuBackend, ProcessorBackend
    from copydesk.inference.engine.native.cuda.bucket_device import BucketDevice
    from copydesk.inference.engine.native.cuda.buckets import Extent, buckets_for
    from copydesk.inference.engine.native.cuda.padded_layout import PythonPad

    extent = Extent(options.slots, options.context, options.prefill_tokens, options.draft_tokens)
    buckets = buckets_for(extent, graphs)
    pad = None if options.compiled_inputs else PythonPad(buckets, runner.context, runner.spare_row)
    backend = GpuBackend(runner.device) if runner.device.type == "cuda" else ProcessorBackend()
    try:
        return BucketDevice(library, runner, backend, extent, buckets, pad)
    except RuntimeError as error:  # torch's own of that name, or what CUDA says of a graph
        if "out of memory" not in str(error):
            raise
        reason = str(error).partition("\n")[0]
        expected = f"fewer, or fewer slots or a shorter context: {reason}"
        raise InvalidOptionError("graphs", len(buckets), expected) from error


def _torch_device(name: str) -> torch.device:
    import torch

    expected = "a device that torch finds here"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidOptionError("device", name, expected) from error
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
        raise InvalidOptionError("device", name, expected)
    return device


def _check(options: NativeOptions, config: ModelConfig) -> None:
    if not 2 <= options.context <= config.positions:
        raise InvalidOptionError(
            "context", options.context, f"2 to {config.positions}, the model's longest sequence"
        )
    least_of = {"slots": 1, "queue": 0, "cache_tokens": 0, "prefill_tokens": 1, "draft_tokens": 0, "threads": 0}
    for name, least in least_of.items():
        value = getattr(options, name)
        if not least <= value <= _MOST:
            raise InvalidOptionError(name, value, f"{least} to {_MOST}")
    if options.graphs is not None and not 0 <= options.graphs <= _MOST:
        raise InvalidOptionError("graphs", options.graphs, f"0 to {_MOST}")


def _warm_up(engine: NativeEngine | CompiledEngine) -> None:
    def discard(_: GeneratedTokens) -> None: ...

    length = min(16, engine.context - 1)
    for _ in range(min(2, engine.capacity)):
        request = GenerateTokens(prompt=[0] * length, max_tokens=4, stop_ids=[])
        engine.submit(request, deadline=math.inf, priority=Priority.INTERACTIVE, on_done=discard)
    while engine.step(0.0):
        pass
