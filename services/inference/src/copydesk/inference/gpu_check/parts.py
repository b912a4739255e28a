"""What a check consists of, and how many seconds each part may take: below eight minutes together."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from copydesk.inference.gpu_check.rows import Row

if TYPE_CHECKING:
    from copydesk.inference.gpu_check.models import CheckedModel


@dataclass(frozen=True, slots=True)
class Request:
    """What is checked: on `device`; `model` is the directory of a real model, in place of SmolLM2's shape.

    `work` is a folder for what is written on the way, `sentences` a file with one to correct a line.
    """

    device: str
    work: Path
    model: Path | None
    sentences: Path | None
    quick: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One part; what it imports is imported when it is run. What repeats another one is left out of a dry run."""

    name: str
    seconds: float
    run: Callable[[Request], Iterator[Row]]
    repeats: bool = False


def _machine(request: Request) -> Iterator[Row]:
    import torch

    device = torch.device(request.device)
    yield Row("machine", "python", note=platform.python_version())
    yield Row("machine", "torch", note=f"{torch.__version__}, CUDA {torch.version.cuda}")
    if device.type != "cuda":
        yield Row("machine", "device", note=f"{device}: a dry run, whose figures say nothing of a GPU")
        return
    found = torch.cuda.get_device_properties(device)
    capability = f"{found.major}.{found.minor}"
    memory = found.total_memory / 2**30
    yield Row("machine", "device", note=f"{found.name}, {memory:.0f} GiB, compute capability {capability}")


def _kernels(request: Request) -> Iterator[Row]:
    import torch

    from copydesk.inference.gpu_check.kernels import check_kernels

    with torch.inference_mode():
        yield from check_kernels(torch.device(request.device), quick=request.quick)


def _parity(request: Request) -> Iterator[Row]:
    import torch

    from copydesk.inference.gpu_check.parity import check_parity

    yield from check_parity(torch.device(request.device), request.work, quick=request.quick)


def _rates_of_first(request: Request) -> Iterator[Row]:
    return _rates(request, large=False)


def _rates_of_large(request: Request) -> Iterator[Row]:
    return _rates(request, large=True)


def _rates(request: Request, *, large: bool) -> Iterator[Row]:
    import torch

    from copydesk.inference.gpu_check import rates

    device = torch.device(request.device)
    scale = rates.QUICK if request.quick else rates.FULL
    yield from rates.measure_rates(_model(request, device, large=large), device, scale)


def _pods_of_first(request: Request) -> Iterator[Row]:
    return _pods(request, large=False)


def _pods_of_large(request: Request) -> Iterator[Row]:
    return _pods(request, large=True)


def _pods(request: Request, *, large: bool) -> Iterator[Row]:
    import torch

    from copydesk.inference.gpu_check.pods import FULL, QUICK, measure_pods

    device = torch.device(request.device)
    model = _model(request, device, large=large)
    yield from measure_pods(model, device, QUICK if request.quick else FULL, request.work)


def _model(request: Request, device: object, *, large: bool) -> CheckedModel:
    import torch

    from copydesk.inference.gpu_check import models, shapes

    assert isinstance(device, torch.device)
    if large:
        return models.made_up(shapes.TINY_TOO if request.quick else shapes.LLAMA_1B, request.work, device)
    if request.model is not None and request.sentences is not None:
        return models.real(request.model, request.work, request.sentences)
    return models.made_up(shapes.TINY if request.quick else shapes.SMOLLM2_135M, request.work, device)


PARTS = (
    Part("machine", 15, _machine),
    Part("kernels", 40, _kernels),
    Part("parity", 75, _parity),
    Part("rates", 95, _rates_of_first),
    Part("rates-large", 105, _rates_of_large, repeats=True),
    Part("pods", 85, _pods_of_first),
    Part("pods-large", 50, _pods_of_large, repeats=True),
)
"""In the order of what is to be known first."""

SECONDS = 470.0
"""For all of them: what one leaves of its time is not given to another."""


def parts_of(request: Request, names: Sequence[str] = ()) -> list[Part]:
    """What is to be run: those that are named, or all that make sense."""
    if names:
        return [part for part in PARTS if part.name in names]
    return [part for part in PARTS if not (request.quick and part.repeats)]
