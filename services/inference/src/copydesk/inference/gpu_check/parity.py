"""Whether graphs, drafts and steps begun ahead leave every answer as it is."""

from __future__ import annotations

import dataclasses
import gc
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import Engine, GeneratedTokens, GenerateTokens
from copydesk.inference.engine.native import NativeOptions, Precision, open_engine
from copydesk.inference.engine.native.config import read_config
from copydesk.inference.engine.native.layout import Run
from copydesk.inference.engine.native.runner import TorchRunner
from copydesk.inference.gpu_check.rows import Row
from copydesk.inference.gpu_check.shapes import PARITY, TINY, write_random

_PART = "parity"
_NOISE = {Precision.FLOAT32: 2**-16, Precision.BFLOAT16: 2**-5}
"""Of the largest score: the precision has 24 or 8 bits, and much is rounded to it on the way."""

_Answers = list[list[int]]


@dataclass(frozen=True, slots=True)
class _Way:
    name: str
    changes: dict[str, Any]


_PLAIN: dict[str, Any] = {"graphs": 0, "asynchronous": False, "draft_tokens": 0}


def check_parity(device: torch.device, work: Path, *, quick: bool) -> Iterator[Row]:
    """All ways answer alike, unless two tokens are so nearly as likely that rounding decides between them.

    In float32 that hardly ever happens; in bfloat16 it does.
    """
    shape = TINY if quick else PARITY
    directory = write_random(work / "parity", shape)
    sizes = (
        _Sizes(slots=4, context=96, requests=10, graphs=24)
        if quick
        else _Sizes(slots=24, context=160, requests=60, graphs=192)
    )
    requests = _requests(shape.vocabulary, sizes)
    options = NativeOptions(
        precision=Precision.FLOAT32,
        slots=sizes.slots,
        context=sizes.context,
        queue=len(requests),
        prefill_tokens=64,
        draft_tokens=96,
        device=str(device),
        threads=1 if device.type == "cpu" else 0,
    )
    plain = _answers(directory, dataclasses.replace(options, **_PLAIN), requests)
    requests = _with_sources(requests, plain, shape.vocabulary)
    judge = _Judge(directory, sizes.context, device)
    for precision in (Precision.FLOAT32,) if quick else (Precision.FLOAT32, Precision.BFLOAT16):
        options = dataclasses.replace(options, precision=precision)
        wanted = _answers(directory, dataclasses.replace(options, **_PLAIN), requests)
        for way in _ways(sizes.graphs):
            found = partial(_answers, directory, dataclasses.replace(options, **way.changes), requests)
            yield _compared(f"{precision.value}: {way.name}", found, wanted, requests, judge, _NOISE[precision])


@dataclass(frozen=True, slots=True)
class _Sizes:
    slots: int
    context: int
    requests: int
    graphs: int


def _ways(graphs: int) -> list[_Way]:
    """Against eager steps, one at a time, without drafts."""
    return [
        _Way("eager, drafts", _PLAIN | {"draft_tokens": 96}),
        _Way("graphs", _PLAIN | {"graphs": graphs}),
        _Way("graphs, drafts", _PLAIN | {"graphs": graphs, "draft_tokens": 96}),
        _Way("graphs, begun ahead", _PLAIN | {"graphs": graphs, "asynchronous": True}),
        _Way("graphs, begun ahead, drafts", {"graphs": graphs}),
        _Way("few graphs, begun ahead, drafts", {"graphs": 5}),
        _Way("graphs, begun ahead, inputs in Python", {"graphs": graphs, "compiled_inputs": False}),
    ]


def _requests(vocabulary: int, sizes: _Sizes) -> list[GenerateTokens]:
    rng = random.Random(2)
    requests: list[GenerateTokens] = []
    for _ in range(sizes.requests):
        prompt = [rng.randrange(vocabulary) for _ in range(rng.randint(1, sizes.context // 2))]
        requests.append(GenerateTokens(prompt, rng.randint(1, sizes.context // 2 - 1), []))
    return requests


def _with_sources(requests: Sequence[GenerateTokens], answers: _Answers, vocabulary: int) -> list[GenerateTokens]:
    """Sources like the answers, so that drafts are right, wrong, and right again."""
    rng = random.Random(3)
    sourced: list[GenerateTokens] = []
    for request, answer in zip(requests, answers, strict=True):
        source = [token if rng.random() < 0.9 else rng.randrange(vocabulary) for token in answer]
        sourced.append(GenerateTokens(request.prompt, request.max_tokens, request.stop_ids, source=source))
    return sourced


def _answers(directory: Path, options: NativeOptions, requests: Sequence[GenerateTokens]) -> _Answers:
    """They come in bursts, so that steps mix prompts, drafts and single tokens.

    Engines before this one are collected first: they hold graphs, which are not to go while others are captured.
    """
    gc.collect()
    engine: Engine = open_engine(directory, options)
    rng = random.Random(4)
    waiting = list(enumerate(requests))
    answers: dict[int, list[int]] = {}

    def done(index: int, answer: GeneratedTokens) -> None:
        answers[index] = answer.tokens

    while waiting or len(answers) < len(requests):
        for _ in range(min(rng.choice((0, 1, 2, 5)), len(waiting))):
            index, request = waiting.pop(0)
            engine.submit(request, deadline=math.inf, priority=Priority.INTERACTIVE, on_done=partial(done, index))
        engine.step(time.monotonic())
    return [answers[index] for index in range(len(requests))]


def _compared(
    setting: str,
    answers: Callable[[], _Answers],
    wanted: _Answers,
    requests: Sequence[GenerateTokens],
    judge: _Judge,
    noise: float,
) -> Row:
    try:
        found = answers()
    except Exception as error:
        return Row(_PART, setting, ok=False, note=f"{type(error).__name__}: {error}"[:200])
    different = [index for index in range(len(wanted)) if found[index] != wanted[index]]
    gaps = [judge.gap(requests[index], wanted[index], found[index]) for index in different]
    unexplained = sum(gap > noise for gap in gaps)
    note = f"{len(different)} of {len(wanted)} differ"
    if gaps:
        note += f", at scores at most {max(gaps):.2g} apart; {unexplained} by more than noise"
    same = (len(wanted) - len(different)) / len(wanted)
    return Row(_PART, setting, value=round(same, 3), unit="same", ok=unexplained == 0, note=note)


class _Judge:
    """Says by the scores of float32 how nearly as likely two tokens are at which two answers part."""

    def __init__(self, directory: Path, context: int, device: torch.device) -> None:
        config = read_config(directory)
        self._runner = TorchRunner(directory, config, slots=1, context=context, dtype=torch.float32, device=device)

    def gap(self, request: GenerateTokens, one: list[int], other: list[int]) -> float:
        """How far apart the scores of the first two tokens that differ are, of the largest score."""
        place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        if place is None:
            return math.inf
        known = [*request.prompt, *one[:place]]
        scores = self._runner.logits([Run(0, 0, 0, known, 1)])[0][0]
        return abs(float(scores[one[place]] - scores[other[place]])) / float(scores.abs().max())
