"""What a look at a model's directory found. Pure data: sizes in bytes, lengths in tokens."""

from __future__ import annotations

import enum

import msgspec


class Severity(enum.StrEnum):
    """An error keeps the model from being served, or from being trusted; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Problem(msgspec.Struct, frozen=True):
    """Something that is not as it should be: what it is about (a file, a key, a tensor), what, and what to do."""

    severity: Severity
    about: str
    what: str
    advice: str = ""

    def __str__(self) -> str:
        """Write it on one line."""
        line = f"{self.about}: {self.what}" if self.about else self.what
        return f"{line}; {self.advice}" if self.advice else line


def error(about: str, what: str, advice: str = "") -> Problem:
    """Return what keeps the model from being used."""
    return Problem(Severity.ERROR, about, what, advice)


def warning(about: str, what: str, advice: str = "") -> Problem:
    """Return what does not."""
    return Problem(Severity.WARNING, about, what, advice)


class EngineSupport(msgspec.Struct, frozen=True):
    """Whether an engine computes this model (None: that cannot be told here), and why not."""

    engine: str
    supported: bool | None
    reason: str = ""


class TypeSize(msgspec.Struct, frozen=True):
    """What is stored in one type of number."""

    tensors: int
    parameters: int
    bytes: int


class Sizes(msgspec.Struct, frozen=True):
    """How much there is of it; scales of quantised weights are no parameters, and do take bytes."""

    files: int = 0
    tensors: int = 0
    parameters: int = 0
    bytes: int = 0
    by_dtype: dict[str, TypeSize] = {}


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of config.json that say how a decoder is built; `context` is the longest sequence."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    tied: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False


class Quantised(msgspec.Struct, frozen=True):
    """What `quantization_config` says: its method, "fp8" or "int8" if it is one of these, and what it leaves."""

    method: str
    scheme: str
    per_tensor: bool
    ignore: tuple[str, ...]


class TokenizerReport(msgspec.Struct, frozen=True):
    """The tokenizer: its kind as the library names it, how many tokens it has, the largest id, special ones."""

    kind: str
    tokens: int
    largest_id: int
    special: tuple[str, ...]


class PromptReport(msgspec.Struct, frozen=True):
    """How a sentence is asked about: where the template is, and what a sentence becomes.

    `around` are the tokens that the template adds; `stop_tokens` end an answer.
    """

    template: str
    digest: str
    example: str
    prompt: str
    around: int
    stop_tokens: tuple[str, ...]
    min_similarity: float
    max_tokens_per_source_token: float


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the model takes of a target's memory in one arithmetic, about, and how many slots fit beside it.

    `fixed` is what the process takes before it loads anything; `context` the tokens of a slot.
    """

    target: str
    arithmetic: str
    total: int
    fixed: int
    weights: int
    kv_bytes_per_token: int
    context: int
    slots: int

    @property
    def kv_bytes_per_slot(self) -> int:
        """What a slot's keys and values take at the most."""
        return self.kv_bytes_per_token * self.context


class ModelReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that a model's directory tells without its weights being read. None: it could not be told."""

    directory: str
    architecture: str = ""
    engines: tuple[EngineSupport, ...] = ()
    sizes: Sizes = Sizes()
    shape: Shape | None = None
    quantisation: Quantised | None = None
    tokenizer: TokenizerReport | None = None
    prompt: PromptReport | None = None
    memory: tuple[MemoryReport, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """What keeps it from being used."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)

    @property
    def usable(self) -> bool:
        """Whether nothing does."""
        return not self.errors
