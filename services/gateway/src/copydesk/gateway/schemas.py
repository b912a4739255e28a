"""The bodies of the REST API, as msgspec structs: they decode, encode, and make the OpenAPI schemas."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Offset = Annotated[int, Meta(ge=0, description="in Unicode code points of the input text")]


class CorrectRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Exactly one of `text` and `texts`."""

    text: Annotated[str, Meta(description="the text to correct")] | UnsetType = UNSET
    texts: Annotated[list[str], Meta(description="texts to correct, each on its own")] | UnsetType = UNSET
    model: Annotated[str, Meta(description="a model of /v1/models; without it, the one served")] | UnsetType = (
        UNSET
    )
    priority: (
        Annotated[
            Literal["interactive", "batch"],
            Meta(description="batch waits for interactive work; without it, X-Request-Priority, else interactive"),
        ]
        | UnsetType
    ) = UNSET
    language: Annotated[str, Meta(description="auto, en, or a variety such as en-US")] | UnsetType = UNSET


class EditBody(msgspec.Struct, frozen=True):
    """Replace the code points `[start, end)` of the input by `replacement`; `start == end` inserts."""

    start: Offset
    end: Offset
    replacement: str


class SkippedBody(msgspec.Struct, frozen=True):
    """A part of the input that was left as it is.

    `reason` is `nothing_to_correct` (no words in it), `too_long` (for the model), `truncated` (the model's
    answer lacked its end) or `dissimilar` (its answer was no correction of the input).
    """

    start: Offset
    end: Offset
    reason: str


class Usage(msgspec.Struct, frozen=True):
    """What the request cost: model tokens, and sentences sent to the model."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    sentences: int


class CorrectedText(msgspec.Struct, frozen=True):
    """One corrected text. Applying `edits` to the input gives `corrected` exactly."""

    corrected: str
    edits: list[EditBody]
    skipped: list[SkippedBody]


class TextAnswer(msgspec.Struct, frozen=True):
    """The answer to a request with `text`."""

    id: str
    model: str
    model_digest: str
    corrected: str
    edits: list[EditBody]
    skipped: list[SkippedBody]
    usage: Usage
    latency_ms: float


class TextsAnswer(msgspec.Struct, frozen=True):
    """The answer to a request with `texts`: one result for each, in order."""

    id: str
    model: str
    model_digest: str
    results: list[CorrectedText]
    usage: Usage
    latency_ms: float


class ErrorDetail(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong. `code` is stable; `param` is the field at fault, `limit` the limit that was passed."""

    message: str
    type: str
    param: str | None
    code: str
    limit: int | UnsetType = UNSET


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every answer that is no success."""

    error: ErrorDetail


class ModelBody(msgspec.Struct, frozen=True):
    """A model that can be asked for. `digest` names its weights, once a pod has told it.

    `created` is since when this gateway serves it, in Unix seconds.
    """

    id: str
    digest: str
    created: int
    object: str = "model"
    owned_by: str = "copydesk"


class ModelList(msgspec.Struct, frozen=True):
    """The models that this gateway serves."""

    data: list[ModelBody]
    object: str = "list"


class Health(msgspec.Struct, frozen=True):
    """`ok`, or what is missing."""

    status: str


class PodBody(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as this gateway sees it.

    `state` is ready, ejected, warming, draining, disconnected or unused (by this gateway, which uses others);
    `eligible` says whether the gateway can send it new work. `running` and `queued` are the pod's own word (null
    until it has told), the rest is this gateway's count. `ewma_ms` is the latency that it is chosen by, `mean_ms`
    the plain mean of recent answers, `weight` what part of a full share it gets as long as it is new. While it is
    ejected, `ejected` says why, and `ejected_ms` for how much longer. `digest` names the weights that it runs, ""
    until it has told.
    """

    id: str
    address: str
    zone: str
    state: str
    connected: bool
    eligible: bool
    in_flight: int
    running: int | None
    queued: int | None
    capacity: int
    ewma_ms: float | None
    mean_ms: float | None
    weight: float
    ejected: str | None
    ejected_ms: int
    requests: int
    errors: int
    digest: str = ""


class FleetTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the pods, and what is done with them.

    `ejected` counts the pods that are left alone for now, unless that is `panic`: more than half would be, and all
    are used. `aperture` is how many pods this gateway connects to, `allowance` how many sentences it may have at
    them, `underway` how many it has or tries to place, `queued` how many wait until it may.
    """

    pods: int
    eligible: int
    in_flight: int
    capacity: int
    requests: int
    errors: int
    retries: int
    hedges: int
    shed: int
    ejected: int
    ejections: int
    panic: bool
    aperture: int
    allowance: int
    underway: int
    queued: int


class FleetBody(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet as this gateway sees it. `discovery_connected` is whether NATS is; serving does not need it."""

    model: str
    model_digest: str
    discovery_connected: bool
    pods: list[PodBody]
    totals: FleetTotals


class ScaleDecisionBody(msgspec.Struct, frozen=True):
    """What an autoscaler decided, and when, in Unix milliseconds."""

    at_ms: int
    replicas: int
    reason: str


class FleetHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The last minutes of this gateway, second by second: each list has one value for each of `at_ms`.

    Times are Unix milliseconds, the end of each second; `started_ms` tells one run of the gateway from another.
    `requests_per_s` counts all requests for corrections and texts, `refused_per_s` those answered with 429,
    `failed_per_s` those answered with a 5xx. `in_flight` counts sentences at pods at that moment. The percentiles
    are of the requests of about the last ten seconds that succeeded, right within an eighth; null when there were
    none. `scale_decisions` are those that changed the size or tell of trouble; `scale_heard_ms` is when an
    autoscaler was last heard, whatever it said, null as long as none was.
    """

    started_ms: int
    at_ms: list[int]
    requests_per_s: list[float]
    refused_per_s: list[float]
    failed_per_s: list[float]
    in_flight: list[int]
    p50_ms: list[float | None]
    p99_ms: list[float | None]
    scale_decisions: list[ScaleDecisionBody]
    scale_heard_ms: int | None
