"""What became of a model: what is quantised, what that costs each module, and how often the answer is the same."""

from __future__ import annotations

from pathlib import Path

import msgspec

from copydesk.inference.checkpoint.manifest import QUANTISATION_REPORT


class ScaleErrors(msgspec.Struct, frozen=True, kw_only=True):
    """Relative errors, Frobenius norm of the difference over that of the original, by what shares a scale."""

    channel: float
    tensor: float


class ModuleReport(msgspec.Struct, frozen=True, kw_only=True):
    """One linear module. Errors are what quantising it costs by itself, or would if it were not `kept`.

    `weight` is the error of the weight; `output` of what the module makes of the original's activations, rounded
    token by token. Both are None where nothing was measured.
    """

    name: str
    layer: int
    kind: str
    shape: tuple[int, int]
    kept: str | None
    weight: ScaleErrors | None = None
    output: ScaleErrors | None = None


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How often a quantised model chooses the original's token: `share` of the tokens of the original's answers.

    `attention` says whether attention is quantised, `weight_scale` what shares a scale; `planned` marks the model
    that was written.
    """

    variant: str
    weight_scale: str
    quantised_modules: int
    planned: bool
    share: float


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on: so many texts, tokens of prompts and answers, and tokens of the answers among them."""

    texts: int
    tokens: int
    answer_tokens: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the evaluation texts have shown; modules are by full name."""

    evaluation: Evaluation
    weight: dict[str, ScaleErrors]
    output: dict[str, ScaleErrors]
    agreement: tuple[Agreement, ...]


class QuantisationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A model that was quantised. Sizes are those of the files of weights, in bytes.

    `source_digest` and `digest` name the original and the result. Without `evaluation`, nothing was measured.
    """

    scheme: str
    weight_scale: str
    source_digest: str
    digest: str
    bytes_before: int
    bytes_after: int
    quantised_modules: int
    kept_modules: int
    evaluation: Evaluation | None
    agreement: tuple[Agreement, ...]
    modules: tuple[ModuleReport, ...]


def write_report(directory: Path, report: QuantisationReport) -> None:
    """Put the report beside the weights; it does not count in the digest that names them."""
    content = msgspec.json.format(msgspec.json.encode(report), indent=2)
    (directory / QUANTISATION_REPORT).write_bytes(content + b"\n")


def read_report(directory: Path) -> QuantisationReport:
    """Read the report beside the weights.

    Raises:
        OSError: there is none.
        msgspec.DecodeError: it is none.
    """
    return msgspec.json.decode((directory / QUANTISATION_REPORT).read_bytes(), type=QuantisationReport)
