"""How much work there is: from the reports of gateways and the loads of pods, to pods' worth of work.

Missing is not zero. A gateway that has fallen silent forbids shrinking, and counts with what it said last: of what
it had at pods, what these say themselves where every one does, so that one that crashes and comes back under
another name, again and again, does not multiply. It is left out once others are heard: after a minute if every
pod says what it has, so that whatever the silent one sends is seen where it arrives; else after a quarter of an
hour, or no such fleet would shrink again after one crash. An outage that was read as no load has emptied fleets:
kubernetes/kubernetes#104387, kedacore/keda#3065.

What is refused is demand as well: shedding or a bounded queue must not hide it (knative/serving#2141).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.observation import GatewayDemand
from copydesk.autoscaler.pods import Census
from copydesk.autoscaler.rules import Rules

ABSURD = 1e9
"""No fleet has so many requests: what says so is broken, and counts as missing."""


FORGET_S = 900.0
"""A gateway that has been silent for so long is gone, if others are heard: its machine or its network is not."""
SLOWEST = 2.0
"""What is refused is not taken to cost more than so many times what was certified, nor less than that part."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand at one moment. `concurrency` are requests at the fleet and in queues before it, `work` pods' worth
    of it with what was refused. `stale` are the gateways that are not heard in time, `heard` whether any is.
    `done` is what was answered, in requests a second, as far as that is known.
    """

    concurrency: float
    work: float
    stale: tuple[str, ...]
    heard: bool
    waiting: bool
    refused: bool
    service_s: float | None
    p99_ms: float | None
    done: float | None


def measure(
    gateways: Iterable[GatewayDemand], census: Census, capacity: Capacity, rules: Rules, usual_s: float, now: float
) -> Demand:
    """Add up what there is; `usual_s` is the service time last known, 0 for none."""
    fresh: list[GatewayDemand] = []
    late: list[GatewayDemand] = []
    broken: list[str] = []
    for one in gateways:
        if not _sound(one):
            broken.append(one.gateway)
        else:
            (fresh if now - one.at <= rules.stale_s else late).append(one)
    covered = bool(fresh) and census.load is not None
    silent_s = rules.silent_s if covered else max(FORGET_S, rules.silent_s)
    held = [one for one in late if not (fresh and now - one.at > silent_s)]
    counted = fresh + held
    in_flight = sum(one.in_flight + one.queued for one in fresh)
    in_flight += sum(one.queued if covered else one.in_flight + one.queued for one in held)
    concurrency = max(in_flight, census.load or 0.0)
    service_s = _mean([(one.service_s, one.in_flight) for one in fresh])
    shed = sum(one.shed for one in counted)
    return Demand(
        concurrency,
        _work(concurrency, shed, service_s or usual_s, census, capacity, rules),
        (*broken, *(one.gateway for one in held)),
        bool(fresh),
        any(one.queued >= 1.0 for one in counted),
        shed > 0.0,
        service_s,
        _mean([(one.p99_ms, one.in_flight) for one in fresh]),
        _done(fresh),
    )


def _work(
    concurrency: float, shed: float, service_s: float, census: Census, capacity: Capacity, rules: Rules
) -> float:
    """Return pods' worth of work: what runs, what waits over the time to work it off, what was refused."""
    full = census.ready * capacity.concurrency
    running = capacity.work(min(concurrency, full), census.ready)
    waiting = max(0.0, concurrency - full) / (capacity.rate * rules.drain_s)
    refused = shed / capacity.rate * _slowness(min(concurrency, full), service_s, census, capacity)
    return min(ABSURD, running + waiting + refused)


def _slowness(concurrency: float, service_s: float, census: Census, capacity: Capacity) -> float:
    """Return how many times longer requests take than the certificate says of pods with so many: texts differ."""
    if not (census.ready and concurrency > 0.0 and service_s > 0.0):
        return 1.0
    each = concurrency / census.ready
    rate = capacity.share(each) * capacity.rate
    if not rate > 0.0:
        return 1.0
    certified = each / rate
    return min(SLOWEST, max(1.0 / SLOWEST, service_s / certified))


def _done(fresh: Iterable[GatewayDemand]) -> float | None:
    rates = [one.answered for one in fresh if one.answered is not None and 0.0 <= one.answered < ABSURD]
    return sum(rates) if rates else None


def _sound(one: GatewayDemand) -> bool:
    return math.isfinite(one.at) and all(0.0 <= value < ABSURD for value in (one.in_flight, one.queued, one.shed))


def _mean(weighted: Iterable[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None and 0.0 < value < ABSURD]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total > 0.0 else None
