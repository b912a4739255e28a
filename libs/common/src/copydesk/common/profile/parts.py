"""What a model profile consists of. Pure data; every figure of a capacity is that of one pod."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from copydesk.common.profile.errors import ProfileError

VERSION = 1
"""Of the file. A reader refuses what is newer: a key that it does not know may change the meaning."""

NAME = r"^[A-Za-z0-9_-]{1,64}\Z"
DIGEST = r"^[0-9a-f]{64}\Z"
WORD = r"^[a-z0-9_]{1,32}\Z"

Name = Annotated[str, msgspec.Meta(pattern=NAME)]
Digest = Annotated[str, msgspec.Meta(pattern=DIGEST)]
Word = Annotated[str, msgspec.Meta(pattern=WORD)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
Several = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
Figure = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Score = Annotated[float, msgspec.Meta(ge=0, le=100)]


class ModelPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model it is.

    `name` is what gateways and pods call it, `directory` where its files are (relative to the profile, or
    absolute), `digest` the one that `copydesk.inference.checkpoint.read_digest` gives for them. `architecture` is
    as in config.json; `parameters` are counted in numbers, `bytes` are those of the weights on disk.
    """

    name: Name
    directory: Text
    digest: Digest
    architecture: str = ""
    parameters: Count = 0
    bytes: Count = 0


class PrecisionPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In which numbers the model is stored and computed.

    `scheme` is that of the stored weights ("none": as they were trained; "fp8", "int8"), with one scale for each
    tensor (`per_tensor`) or each channel, and `keep` the modules or groups that were left as they are. `dtype` is
    the arithmetic of the engine, as in COPYDESK_INFERENCE_DTYPE.
    """

    scheme: Word = "none"
    per_tensor: bool = False
    keep: tuple[Text, ...] = ()
    dtype: Word = "auto"


class PromptPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the model is asked: the file of its directory that holds the template, and the SHA-256 of that file."""

    template: Text
    digest: Digest


class EnginePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a pod runs the model; each key is the setting COPYDESK_INFERENCE_<KEY>, and None leaves it as it is.

    `engine` is what computes: native or vllm. `draft` says whether tokens are drafted, `draft_tokens` how many a
    step at the most. `threads`, `workers` and `engines` are those of one pod.
    """

    engine: Word = "native"
    device: Text | None = None
    engines: Several | None = None
    slots: Several | None = None
    context: Several | None = None
    cache_tokens: Count | None = None
    queue: Count | None = None
    threads: Count | None = None
    workers: Several | None = None
    draft: bool | None = None
    draft_tokens: Several | None = None


class Interval(NamedTuple):
    """A confidence interval, both ends included; `high` is None where nothing was seen to be too much."""

    low: float
    high: float | None


class CurvePoint(NamedTuple):
    """A load that was measured: the mean number of requests in flight at a pod, and requests a second of it."""

    concurrency: float
    rate: float


class CertificatePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The capacity certificate that the figures are from: its file (relative to the profile, or absolute), and the
    SHA-256 of that.
    """

    file: Text
    digest: Digest


class CapacityPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one pod holds, with P(latency > `objective_ms`) at most `miss_share`, measured on `hardware`.

    `max_rate` is R* in requests a second, `interval` its 95 % confidence interval; `concurrency` is C*, the mean
    number of requests in flight at that rate, and `target_concurrency` what a pod is to be loaded with at the most
    while all is quiet. `curve` ascends in concurrency up to C*. `pods` is how many were measured together.
    """

    max_rate: Figure
    interval: Interval
    concurrency: Figure
    target_concurrency: Figure
    objective_ms: Figure
    hardware: Text
    miss_share: Share = 0.01
    pods: Several = 1
    curve: tuple[CurvePoint, ...] = ()
    certificate: CertificatePart | None = None


class QualityPart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `copydesk model evaluate` found on `data`; None is what was not measured.

    `gleu` and `gleu_reference` are those of the model and of what it was compared with, as that command gives
    them; `over_correction` and `agreement` are shares of the sentences.
    """

    verdict: Text
    data: Text
    gleu: Score | None = None
    gleu_reference: Score | None = None
    exact_match: Share | None = None
    over_correction: Share | None = None
    agreement: Share | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is known of a model before it serves.

    `cold_start_seconds` is the time in which nine of ten new pods are ready. `created_at` says when, `tool` by
    which version of what it was made.
    """

    version: int = VERSION
    model: ModelPart
    prompt: PromptPart
    precision: PrecisionPart = PrecisionPart()
    engine: EnginePart = EnginePart()
    capacity: CapacityPart | None = None
    cold_start_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] | None = None
    quality: QualityPart | None = None
    created_at: Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    tool: Text

    @property
    def identity(self) -> str:
        """What tells this model from all others at a glance: its name, and the beginning of its digest."""
        return f"{self.model.name}@{self.model.digest[:12]}"

    def model_directory(self, path: Path) -> Path:
        """Where the model is, for a profile that was read from `path`."""
        return (path.absolute().parent / Path(self.model.directory).expanduser()).resolve()

    def require(self, source: str, *, model: str = "", digest: str = "", hardware: str = "") -> None:
        """Make sure that this profile is for what is to be run; what is left empty is not compared.

        Raises:
            ProfileError: It is for another model, other weights or other hardware.
        """
        measured = "" if self.capacity is None else self.capacity.hardware
        for key, wanted, found in (
            ("model.name", model, self.model.name),
            ("model.digest", digest, self.model.digest),
            ("capacity.hardware", hardware, measured),
        ):
            if wanted and found and wanted != found:
                raise ProfileError(source, key, f"{found!r}, and this is {wanted!r}")
