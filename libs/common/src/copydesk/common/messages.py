"""The messages that services publish over NATS, and the subjects they travel on.

Everything here may be lost and rebuilt: a receiver can start at any moment, so each message is a full
statement, never a delta, and a late or replayed one is dropped by its sequence and age. Bodies are JSON, so
that `nats sub 'copydesk.v1.>'` can be read by a person. Unknown fields are ignored, so that a newer sender can
talk to an older receiver; a change that an older receiver would misread takes a new version in the subject.
"""

from __future__ import annotations

import enum
import re

import msgspec

from copydesk.common.errors import CopydeskError

SUBJECT_ROOT = "copydesk.v1"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")


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


class ScaleDecision(msgspec.Struct, frozen=True, kw_only=True):
    """How many pods of a model there shall be, and why; published when that changes.

    `sent_at` is in Unix seconds. `image` is what new pods will run, where the autoscaler knows it: nodes fetch
    what its start-up reads before a pod lands.
    """

    model: str
    sent_at: float
    replicas: int
    reason: str
    image: str = ""


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


def scale_subject(model: str) -> str:
    """Where decisions about the number of pods of `model` are published; `*` subscribes to every model."""
    return f"{SUBJECT_ROOT}.scale.{model if model == '*' else subject_token(model)}"


def blocks_subject(image: str) -> str:
    """Where nodes say what they have of `image` (a digest's hexadecimal digits); `*` subscribes to every image."""
    return f"{SUBJECT_ROOT}.blocks.{image if image == '*' else subject_token(image)}"
