"""One line of the decision log: what was decided, from what, and what had become of requests until then."""

from __future__ import annotations

from typing import Any

import msgspec

from copydesk.autoscaler.decision import Decision
from copydesk.autoscaler.observer import Outcome
from copydesk.common.messages import ScaleDecision

LIVE = "live"
DRY = "dry-run"
"""What the live configuration is called where nobody acts on it."""
OBSERVED, VIRTUAL = "observed", "virtual"
"""What stands in the inputs of a message beside those of the decision."""


class Virtual(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet that a candidate would have: pods at work, and how many pods' worth of work there was for them."""

    ready: int
    work: float


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """Of a decision, what figures are made of: who decided what at `time` (Unix seconds), and what came before.

    `size` is what was asked for before, `replicas` from now on. `observed` is what became of requests since the
    decision before, under the size that it left.
    """

    time: float
    model: str
    epoch: int
    sequence: int
    policy: str
    size: int
    replicas: int
    observed: Outcome = Outcome()
    virtual: Virtual | None = None
    slo_ms: float = 0.0


class Entry(Brief, frozen=True, kw_only=True):
    """A decision as it is logged: `inputs` are those of the decision, by name.

    `acted` says what came of it: "ordered", "kept" (there was nothing to order), "nobody acts", "left at N" or why
    it failed.
    """

    rule: str
    reason: str
    inputs: dict[str, Any] = {}
    acted: str = "nobody acts"
    stuck: tuple[str, ...] = ()


MOST_NAMED = 100
"""Of stuck pods, and of silent gateways: a line every two seconds shall be no list of thousands."""


def entry_of(
    decision: Decision, *, time: float, model: str, epoch: int, sequence: int, policy: str, slo_ms: float
) -> Entry:
    """Put a decision into a line; who observed or acted adds that."""
    inputs = msgspec.to_builtins(decision.inputs)
    inputs["stale_gateways"] = inputs["stale_gateways"][:MOST_NAMED]
    return Entry(
        time=time,
        model=model,
        epoch=epoch,
        sequence=sequence,
        policy=policy,
        size=decision.inputs.size,
        replicas=decision.replicas,
        rule=decision.rule.value,
        reason=decision.reason,
        inputs=inputs,
        slo_ms=slo_ms,
        stuck=decision.stuck[:MOST_NAMED],
    )


def message_of(entry: Entry, sent_at: float, image: str = "") -> ScaleDecision:
    """Return what is published of it at `sent_at`, by the wall clock.

    It names the image while pods are ordered or waited for: one message may be lost, and nodes need it until then.
    Receivers judge its age by their wall clock, and that of this machine may have been set since the start.
    """
    inputs = {**entry.inputs, OBSERVED: msgspec.to_builtins(entry.observed), "slo_ms": entry.slo_ms}
    if entry.virtual is not None:
        inputs[VIRTUAL] = msgspec.to_builtins(entry.virtual)
    return ScaleDecision(
        model=entry.model,
        sent_at=sent_at,
        replicas=entry.replicas,
        reason=entry.reason,
        epoch=entry.epoch,
        sequence=entry.sequence,
        rule=entry.rule,
        inputs=inputs,
        image=image if entry.replicas > entry.size or entry.inputs.get("pending") else "",
        policy=entry.policy,
    )


def heard(message: ScaleDecision) -> Entry:
    """Return the line of a decision that was published; what it does not say keeps its default."""
    inputs = dict(message.inputs)
    size = inputs.get("size")
    slo_ms = inputs.pop("slo_ms", 0.0)
    return Entry(
        time=message.sent_at,
        model=message.model,
        epoch=message.epoch,
        sequence=message.sequence,
        policy=message.policy,
        size=size if isinstance(size, int) else message.replicas,
        replicas=message.replicas,
        rule=message.rule,
        reason=message.reason,
        observed=_convert(inputs.pop(OBSERVED, None), Outcome) or Outcome(),
        virtual=_convert(inputs.pop(VIRTUAL, None), Virtual),
        slo_ms=slo_ms if isinstance(slo_ms, float) else 0.0,
        inputs=inputs,
    )


def _convert(value: object, type_: type[Any]) -> Any:
    if value is None:
        return None
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return None
