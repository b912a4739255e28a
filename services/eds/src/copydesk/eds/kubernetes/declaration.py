"""What a Service declares about the pods behind it, by labels or annotations.

======================= =====================================================================================
`copydesk/model`        the model that the pods serve; without it the Service is none of ours
`copydesk/port`         name of the port that gateways talk to; without it the one of the settings
`copydesk/protocol`     `rpc` (without it) or `openai`
`copydesk/capacity`     requests that a pod runs side by side, where it cannot say so itself
======================= =====================================================================================

A label serves where Services are selected by it, an annotation where its value could be no label; the annotation
wins.
"""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.common.messages import EndpointProtocol, InvalidNameError, subject_token
from copydesk.eds.kubernetes.objects import Service
from copydesk.eds.roster import MAX_CAPACITY
from copydesk.kube.objects import Metadata

MODEL = "copydesk/model"
PORT = "copydesk/port"
PROTOCOL = "copydesk/protocol"
CAPACITY = "copydesk/capacity"

IP_FAMILIES = ("IPv4", "IPv6")

# An annotation may have 256 KiB, and what is wrong with it ends in our log.
LONGEST_QUOTE = 80
LONGEST_PROBLEM = 250


@dataclass(frozen=True, slots=True)
class Declaration:
    """A Service as discovery understands it; `families` are its kinds of address, the preferred one first."""

    model: str
    port: str
    protocol: EndpointProtocol
    capacity: int
    families: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the cluster that cannot be used: which object, `namespace/name`, and what is wrong with it."""

    resource: str
    name: str
    text: str


def declaration(service: Service, default_port: str) -> Declaration | Problem:
    """Read what `service` declares."""
    metadata = service.metadata
    model = _value(metadata, MODEL)
    if model is None:
        return _problem(metadata, f"names no model: it needs a label or annotation {MODEL}")
    try:
        subject_token(model)
        protocol = EndpointProtocol(_value(metadata, PROTOCOL) or EndpointProtocol.RPC)
        capacity = _count(_value(metadata, CAPACITY) or "0")
    except InvalidNameError as error:
        return _problem(metadata, f"{MODEL}: {error}")
    except ValueError as error:
        return _problem(metadata, f"{PROTOCOL} or {CAPACITY}: {error}")
    families = (service.spec.ip_families if service.spec is not None else None) or IP_FAMILIES
    return Declaration(model, _value(metadata, PORT) or default_port, protocol, capacity, tuple(families))


def _value(metadata: Metadata, key: str) -> str | None:
    annotated = (metadata.annotations or {}).get(key)
    return annotated if annotated is not None else (metadata.labels or {}).get(key)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text[:LONGEST_QUOTE]!r} is no number of requests")
    # By the number of digits first: to read very many of them takes long, and is refused.
    if len(text) > len(str(MAX_CAPACITY)) or int(text) > MAX_CAPACITY:
        raise ValueError(f"{text[:LONGEST_QUOTE]!r} is more requests than the {MAX_CAPACITY} that a pod can run")
    return int(text)


def _problem(metadata: Metadata, text: str) -> Problem:
    return Problem("services", f"{metadata.namespace}/{metadata.name}", text[:LONGEST_PROBLEM])
