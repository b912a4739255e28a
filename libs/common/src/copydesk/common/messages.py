"""The messages that services publish over NATS, and the subjects they travel on.

Everything here may be lost and rebuilt: a receiver can start at any moment, so each message is a full
statement, never a delta, and a late or replayed one is dropped by its sequence and age. Bodies are JSON, so
that `nats sub 'copydesk.v1.>'` can be read by a person. Unknown fields are ignored, so that a newer sender can
talk to an older receiver; a change that an older receiver would misread takes a new version in the subject.
"""

from __future__ import annotations

import enum
import re
from typing import Annotated, Any

import msgspec

from copydesk.common.errors import CopydeskError

SUBJECT_ROOT = "copydesk.v1"
LATENCY_BOUNDS_MS = (5, 10, 20, 35, 50, 75, 100, 150, 200, 300, 400, 500, 650, 800, 1000, 1500, 2000, 5000, 10000)
"""The upper bounds of the buckets in `Latency`, close where objectives are."""

LONGEST_EXPIRY_S = 3600.0
"""For how long a gateway may follow a plan of a rollout that nobody says any more."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")

Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Epoch = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Name = Annotated[str, msgspec.Meta(max_length=256)]
UnixTime = Annotated[float, msgspec.Meta(ge=0.0, lt=float(1 << 40))]
Expiry = Annotated[float, msgspec.Meta(gt=0.0, le=LONGEST_EXPIRY_S)]


class InvalidNameError(CopydeskError, ValueError):
    """A model or pod name that cannot stand in a subject: it carries the name.

    Also a `ValueError`, so that settings can be validated by `subject_token` as it is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} is no valid name: use 1 to 64 letters, digits, '_' or '-'")


class EndpointState(enum.StrEnum):
    """What a pod can do with new work; only a ready one gets any."""

    READY = "ready"
    WARMING = "warming"
    DRAINING = "draining"


class EndpointProtocol(enum.StrEnum):
    """What a pod speaks: the RPC of `copydesk.common.rpc`, or no more than HTTP in the manner of OpenAI's API."""

    RPC = "rpc"
    OPENAI = "openai"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One inference pod, as discovery publishes it. `started_at` is in Unix seconds.

    `capacity` is how many requests it runs side by side, where it cannot say so itself (0: not known). `node`
    names the machine that it runs on, where the source knows that.
    """

    id: str
    host: str
    port: int
    state: EndpointState
    zone: str = ""
    started_at: float = 0.0
    protocol: EndpointProtocol = EndpointProtocol.RPC
    capacity: int = 0
    node: str = ""


class EndpointsSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Every endpoint of one model at one moment.

    `epoch` grows with each new publisher (its start, in Unix milliseconds), `generation` with each change that
    this publisher saw; a receiver keeps the newest pair. `sent_at` is in Unix seconds. `stale` says that the
    publisher's source cannot be heard at present: these are the endpoints that it named last.
    """

    model: str
    epoch: int
    generation: int
    sent_at: float
    endpoints: tuple[Endpoint, ...]
    stale: bool = False


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod says of itself every 250 ms and on each change of state.

    `running` and `queued` count requests, `capacity` is how many can run side by side, `step_ms` the recent
    mean duration of a decode step. `digest` names the weights; `sequence` grows by one a report, from a start
    that is unique to this run of the pod (`started_at`, in Unix seconds).
    """

    model: str
    pod: str
    sequence: int
    sent_at: float
    started_at: float
    host: str
    port: int
    state: EndpointState
    running: int
    queued: int
    capacity: int
    step_ms: float
    digest: str
    zone: str = ""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests took, as totals: `counts[i]` took at most `LATENCY_BOUNDS_MS[i]`, the last one more.

    Only requests that a pod answered are counted; `total_s` is their latency added up, `at_pods_s` the part of it
    that they spent at pods, in seconds.
    """

    counts: tuple[int, ...]
    total_s: float
    at_pods_s: float


class DemandReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway says every second of the requests for one model.

    `in_flight` (at pods) and `queued` (waiting for a place at one) are means over time of the `interval_s` seconds
    before. `completed`, `failed` and `shed` are totals since this run of the gateway began (`started_at`, in Unix
    seconds), as is `latency`: a receiver takes differences, and a report that is lost loses nothing. `closing`
    says good-bye: this gateway will have no more demand, and its silence means nothing.
    """

    model: str
    gateway: str
    sequence: int
    sent_at: float
    started_at: float
    interval_s: float
    in_flight: float
    queued: float
    completed: int
    failed: int
    shed: int
    latency: Latency
    closing: bool = False


class ScaleDecision(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods of a model there shall be, and why; published each time that it is decided.

    `epoch` grows with each new leader and `sequence` with each of its decisions: who acts on them keeps the newest
    pair and refuses what is older. `sent_at` is in Unix seconds. `rule` names what settled the size, `inputs` are
    all the numbers that it was made from. `image` is what nodes are to have at hand before more pods land on them,
    "" for none. `policy` names the configuration: "live", or the candidate that runs beside it.
    """

    model: str
    sent_at: UnixTime
    replicas: Count
    reason: str
    epoch: int = 0
    sequence: int = 0
    rule: str = ""
    inputs: dict[str, Any] = {}
    image: str = ""
    policy: str = "live"


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the supervisor of a local fleet says every second of the pods of a model that it runs.

    `replicas` is the size that it now works towards, by the decision of `epoch` and `sequence` (0: by none yet).
    `starting` have not been up yet, `draining` end what they have. `sent_at` is in Unix seconds.
    """

    model: str
    sent_at: float
    replicas: int
    starting: tuple[str, ...]
    running: tuple[str, ...]
    draining: tuple[str, ...]
    epoch: int = 0
    sequence: int = 0


class RolloutStage(enum.StrEnum):
    """How far a rollout has come; in the last three it says nothing that would have to be watched."""

    SHADOW = "shadow"
    SHARE = "share"
    FINISHED = "finished"
    ROLLED_BACK = "rolled_back"
    PAUSED = "paused"


class RolloutPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Which of two versions of a model answers what; whoever controls the rollout says it every second.

    `baseline` and `candidate` are the digests that pods report. `share` of the requests are answered by the
    candidate, `shadow_share` of the others are copied to it. `epoch` grows with each new controller (its start, in
    Unix milliseconds), `sequence` with each message: a gateway keeps the newest pair. One that hears nothing for
    `expires_after_s` seconds while the stage is shadow or share has the baseline answer everything.
    """

    model: str
    rollout: Name
    epoch: Epoch
    sequence: Epoch
    sent_at: float
    stage: RolloutStage
    baseline: Name
    candidate: Name
    share: Share = 0.0
    shadow_share: Share = 0.0
    expires_after_s: Expiry = 15.0


class VersionTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the requests to the pods of one version.

    `requests` were answered, `failures` ended with an error that is not the client's, also where another version
    has answered then, `refused` found no room in time. `counts` are the answered by `LATENCY_BOUNDS_MS`, as in
    `Latency`, `total_s` their latency added up. `pods` can take work at this moment.
    """

    digest: Name
    pods: Count = 0
    requests: Count = 0
    failures: Count = 0
    refused: Count = 0
    counts: tuple[Count, ...] = ()
    total_s: float = 0.0


class ComparedTotals(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the copies: how the candidate's answers compare with those that clients got.

    Of the `compared`, both versions gave the `same` answer, or both changed the text differently, or only one of
    them changed it. `failed` and `timeouts` brought no answer to compare, `dropped` were not sent, since the
    candidate was busy. `likeness` is a sum: of the share of words that the two answers have in common.
    """

    compared: Count = 0
    same: Count = 0
    both_changed: Count = 0
    only_candidate: Count = 0
    only_baseline: Count = 0
    failed: Count = 0
    timeouts: Count = 0
    dropped: Count = 0
    likeness: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0


class RolloutReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway says every second of a rollout: which plan it follows, and totals since `started_at`.

    `in_force` is false while the plan has expired there. `started_at`, in Unix seconds, is when this run of the
    gateway began; what is `compared` counts for this `rollout` alone.
    """

    model: str
    gateway: str
    sequence: int
    sent_at: float
    started_at: float
    rollout: Name
    epoch: Epoch
    stage: RolloutStage
    share: Share
    in_force: bool
    baseline: VersionTotals
    candidate: VersionTotals
    compared: ComparedTotals


class BlocksReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which sectors of a lazily loaded image a node has cached, and where it serves them.

    `image` is the digest of the image's index; `held` has a bit for each sector, the first one lowest. `sequence`
    grows by one a report, from a start that is unique to this run of the node (`started_at`, in Unix seconds).
    With `asks`, the node is new to the image and wants to hear the others at once.
    """

    image: str
    node: str
    host: str
    port: int
    started_at: float
    sequence: int
    held: bytes
    asks: bool = False


def subject_token(name: str) -> str:
    """Return `name` if it may stand as one token of a subject, else raise `InvalidNameError`."""
    if _TOKEN.fullmatch(name) is None:
        raise InvalidNameError(name)
    return name


def endpoints_subject(model: str) -> str:
    """Where discovery publishes the endpoints of `model`; `*` subscribes to every model."""
    return f"{SUBJECT_ROOT}.endpoints.{model if model == '*' else subject_token(model)}"


def load_subject(model: str, pod: str) -> str:
    """Where `pod` publishes its load; `*` for either subscribes to all."""
    parts = (part if part == "*" else subject_token(part) for part in (model, pod))
    return ".".join((SUBJECT_ROOT, "load", *parts))


def demand_subject(model: str, gateway: str) -> str:
    """Where `gateway` publishes the demand for `model`; `*` for either subscribes to all."""
    parts = (part if part == "*" else subject_token(part) for part in (model, gateway))
    return ".".join((SUBJECT_ROOT, "demand", *parts))


def scale_subject(model: str) -> str:
    """Where decisions about the number of pods of `model` are published; `*` subscribes to every model."""
    return f"{SUBJECT_ROOT}.scale.{model if model == '*' else subject_token(model)}"


def shadow_subject(model: str) -> str:
    """Where decisions are published that nobody acts on: those of candidates; `*` subscribes to every model."""
    return f"{SUBJECT_ROOT}.shadow.{model if model == '*' else subject_token(model)}"


def replicas_subject(model: str) -> str:
    """Where the supervisor of a local fleet publishes what it runs; `*` subscribes to every model."""
    return f"{SUBJECT_ROOT}.replicas.{model if model == '*' else subject_token(model)}"


def blocks_subject(image: str) -> str:
    """Where nodes say what they have of `image` (a digest's hexadecimal digits); `*` subscribes to every image."""
    return f"{SUBJECT_ROOT}.blocks.{image if image == '*' else subject_token(image)}"


def rollout_subject(model: str) -> str:
    """Where the controller of a rollout of `model` says what holds; `*` subscribes to every model."""
    return f"{SUBJECT_ROOT}.rollout.{model if model == '*' else subject_token(model)}"


def rollout_report_subject(model: str, gateway: str) -> str:
    """Where `gateway` tells how the versions of `model` do; `*` for either subscribes to all."""
    parts = (part if part == "*" else subject_token(part) for part in (model, gateway))
    return ".".join((SUBJECT_ROOT, "rollout-report", *parts))
