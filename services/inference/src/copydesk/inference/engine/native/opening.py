"""From a model directory to an engine that has proved it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine.interface import GeneratedTokens, GenerateTokens
from copydesk.inference.engine.native.config import ModelConfig, read_config
from copydesk.inference.engine.native.engine import NativeEngine
from copydesk.inference.engine.native.errors import InvalidOptionError
from copydesk.inference.engine.native.precision import Precision, torch_dtype
from copydesk.inference.engine.native.runner import TorchRunner

DRAFT_TOKENS = 192
"""Measured on two cores: whether 1 or 64 requests run side by side, no other number serves them much faster."""


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """How an engine is sized.

    `slots` requests run side by side, `queue` more wait, each of `context` tokens at most. `prefill_tokens` bounds
    the prompt tokens of one step: it trades the start of new requests against the pace of running ones; 256 take
    about as long as a decode step of a full batch. Drafts fill a step up to `draft_tokens` tokens of those who
    decode, so that there are the fewer the more requests run; 0 drafts nothing. `threads` is torch's, for the
    whole process; 0 leaves them.
    """

    precision: Precision = Precision.AUTO
    slots: int = 64
    context: int = 512
    queue: int = 256
    prefill_tokens: int = 256
    draft_tokens: int = DRAFT_TOKENS
    threads: int = 0
    device: str = "cpu"


def open_engine(directory: Path, options: NativeOptions | None = None) -> NativeEngine:
    """Load the Hugging Face model in `directory` and run it once, so that the first request finds it warm.

    Raises:
        ModelError: the directory holds no model that this engine serves, or the options do not fit it.
    """
    options = options or NativeOptions()
    config = read_config(directory)
    _check(options, config)
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    runner = TorchRunner(
        directory,
        config,
        slots=options.slots,
        context=options.context,
        dtype=torch_dtype(options.precision, device),
        device=device,
    )
    engine = NativeEngine(
        runner,
        vocabulary=config.vocabulary,
        slots=options.slots,
        context=options.context,
        queue=options.queue,
        prefill_tokens=options.prefill_tokens,
        draft_tokens=options.draft_tokens,
    )
    _warm_up(engine)
    return engine


def _check(options: NativeOptions, config: ModelConfig) -> None:
    if not 2 <= options.context <= config.positions:
        raise InvalidOptionError(
            "context", options.context, f"2 to {config.positions}, the model's longest sequence"
        )
    for name, least in (("slots", 1), ("queue", 0), ("prefill_tokens", 1), ("draft_tokens", 0), ("threads", 0)):
        value = getattr(options, name)
        if value < least:
            raise InvalidOptionError(name, value, f"{least} or more")


def _warm_up(engine: NativeEngine) -> None:
    def discard(_: GeneratedTokens) -> None: ...

    length = min(16, engine.context - 1)
    for _ in range(min(2, engine.capacity)):
        request = GenerateTokens(prompt=[0] * length, max_tokens=4, stop_ids=[])
        engine.submit(request, deadline=math.inf, priority=Priority.INTERACTIVE, on_done=discard)
    while engine.step(0.0):
        pass
