"""What is to be onboarded: the model, the data it is judged on, and the machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from copydesk.cli.bench.machine import Machine, read_machine
from copydesk.cli.capacity.subject import accelerator
from copydesk.cli.commands.model import prepare_shown
from copydesk.cli.onboarding.ledger import digest_of
from copydesk.cli.onboarding.precision import exact_arithmetic
from copydesk.common.errors import CopydeskError
from copydesk.evaluation import Corpus, own_corpus, read_corpus
from copydesk.evaluation.reading import Source

if TYPE_CHECKING:
    from copydesk.inference.inspection import ModelReport

DEFAULT = "default"
_FAST_BFLOAT16 = {"amx_bf16", "avx512_bf16"}


class NoModelError(CopydeskError):
    """There is no directory to begin with: it carries the `path`."""

    exit_code = 2

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class Subject:
    """A model's directory, and what a look at it has shown; `digest` "" where it holds no model."""

    directory: Path
    report: ModelReport
    digest: str


@dataclass(frozen=True, slots=True)
class Ground:
    """What models are judged on: the data, its digest, and the machine; `device` as COPYDESK_INFERENCE_DEVICE."""

    corpus: Corpus
    data_digest: str
    machine: Machine
    device: str
    hardware: str

    def exact(self, subject: Subject) -> str:
        """The arithmetic in which the model is served as it was trained."""
        return exact_arithmetic(
            list(subject.report.sizes.by_dtype),
            device=self.device,
            fast_bfloat16=bool(_FAST_BFLOAT16.intersection(self.machine.instructions)),
        )


def open_subject(name: str) -> Subject:
    """Look at a model's directory, or at the default model, which is prepared if it has to be.

    Raises:
        NoModelError: There is no such directory.
        PreparationError: The default model cannot be prepared.
    """
    from copydesk.inference.checkpoint import read_digest
    from copydesk.inference.checkpoint.errors import CheckpointError
    from copydesk.inference.inspection import inspect_model, this_machine

    directory = Path(name).expanduser()
    if name == DEFAULT and not directory.exists():
        directory = prepare_shown().directory
    if not directory.is_dir():
        raise NoModelError(directory, "it is no directory" if directory.exists() else "there is no such directory")
    directory = directory.resolve()
    try:
        digest = read_digest(directory)
    except (CheckpointError, OSError):
        digest = ""  # the report says what is wrong
    return Subject(directory, inspect_model(directory, [this_machine()]), digest)


def open_ground(data: Path | None, references: Sequence[Path], clean: Path | None, limit: int | None) -> Ground:
    """Read the data, and look at the machine.

    Raises:
        DataError: The data cannot be read.
    """
    corpus = _corpus(data, references, clean, limit)
    machine = read_machine()
    device = os.environ.get("COPYDESK_INFERENCE_DEVICE") or "cpu"
    hardware = (accelerator() if device.startswith("cuda") else "") or machine.processor or "unknown"
    digest = digest_of(msgspec.to_builtins(corpus.examples), corpus.clean, corpus.tokenised)
    return Ground(corpus, digest, machine, device, hardware)


def tool() -> str:
    """Return what is written into files as what made them."""
    return f"copydesk {version('copydesk-cli')}"


def _corpus(data: Path | None, references: Sequence[Path], clean: Path | None, limit: int | None) -> Corpus:
    from copydesk.evaluation.reading import read_clean

    if data is not None:
        return read_corpus(Source(data, tuple(references), clean)).first(limit)
    own = own_corpus(limit)
    return Corpus(own.name, own.examples, own.tokenised, read_clean(clean)[:limit]) if clean else own
