"""What a client is allowed, once its key's limits and the gateway's defaults are put together."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.gateway.keys import KeyLimits
from copydesk.gateway.rates import Rate


@dataclass(frozen=True, slots=True)
class Allowance:
    """None where there is no limit."""

    rate: Rate | None = None
    concurrency: int | None = None


UNLIMITED = Allowance()


def allowance(own: KeyLimits, default: KeyLimits) -> Allowance:
    """Return what holds for a client: its own limits, the defaults where it has none.

    The default burst belongs to the default rate: a key with a rate of its own, and no burst, has one second's
    worth.
    """
    concurrency = default.concurrency if own.concurrency is None else own.concurrency
    rate = _rate(own, default)
    return UNLIMITED if rate is None and concurrency is None else Allowance(rate, concurrency)


def _rate(own: KeyLimits, default: KeyLimits) -> Rate | None:
    if own.requests_per_second is not None:
        return Rate.of(own.requests_per_second, own.burst)
    if default.requests_per_second is None:
        return None
    return Rate.of(default.requests_per_second, default.burst if own.burst is None else own.burst)
