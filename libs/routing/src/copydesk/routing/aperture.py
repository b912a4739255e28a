"""Which pods a gateway process uses: its aperture.

Each connection costs a gateway something, so a process keeps about 32 of them rather than one to every pod (167
connections cost a third of its throughput). Which ones follows from its own name and from the membership alone:
gateways need not know of each other, and each restart under the same name finds the same pods.

Pods stand on a ring in the order of their hashes, and a gateway takes the arc that begins at its own place. Places
of gateways whose names differ in a final number (`gateway-0`, `gateway-1`, ...) are a Kronecker sequence of the
golden ratio, which covers the ring evenly for every number of gateways (the three-distance theorem; Niederreiter,
"Random Number Generation and Quasi-Monte Carlo Methods", 1992): each pod is in about as many apertures as another.
Other names are hashed, and cover it as evenly as chance does. Compare Finagle's deterministic aperture, whose
gateways have to know how many they are, and "Deterministic Subsetting" in "Site Reliability Engineering" (2016).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

OWN_ZONE_SHARE = 0.75
"""The part of an aperture that is of the gateway's own zone, where there are zones; the rest is to spill to."""

_GOLDEN = 0.6180339887498949
_FINAL_NUMBER = re.compile(r"(.*?)(\d{1,9})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of the membership: its name and its zone, which is empty where there are none."""

    id: str
    zone: str = ""


def place(identity: str) -> float:
    """Return where on the ring, in [0, 1), a gateway of this name begins."""
    numbered = _FINAL_NUMBER.fullmatch(identity)
    if numbered is None:
        return _hash(identity) / 2**64
    stem, number = numbered.groups()
    return (_hash(stem) / 2**64 + int(number) * _GOLDEN) % 1.0


def aperture(identity: str, zone: str, members: Iterable[Member], size: int) -> tuple[str, ...]:
    """Return the ids of the pods that the gateway `identity` in `zone` uses: `size` of them, or all.

    A larger aperture of the same gateway contains the smaller one, and a pod that comes or goes changes about one
    other place of it.
    """
    rings: dict[str, list[str]] = {}
    for member in members:
        rings.setdefault(member.zone, []).append(member.id)
    counts = {name: len(ids) for name, ids in rings.items()}
    start = place(identity)
    chosen: list[str] = []
    for name, share in sorted(shares(zone, counts, size).items()):
        chosen += _arc(start, rings[name], share)
    return tuple(chosen)


def shares(zone: str, counts: dict[str, int], size: int) -> dict[str, int]:
    """Deal `size` places out to zones of so many pods: `OWN_ZONE_SHARE` to the own one, the rest by their sizes.

    Where zones, the own one or the others, are too small for their part, the others get what is left.
    """
    total = sum(counts.values())
    size = min(size, total)
    own = counts.get(zone, 0) if zone and len(counts) > 1 else 0
    wanted = round(OWN_ZONE_SHARE * size) if own else 0
    own_share = min(own, max(wanted, size - (total - own)))
    others = {name: count for name, count in counts.items() if not (own and name == zone)}
    dealt = _by_size(others, size - own_share)
    return {**dealt, zone: own_share} if own else dealt


def _by_size(counts: dict[str, int], places: int) -> dict[str, int]:
    """Deal places out in proportion, the fractions to one zone after the other so that none is ever taken back."""
    dealt = dict.fromkeys(counts, 0)
    for _ in range(places):
        name = min(
            (name for name in counts if dealt[name] < counts[name]),
            key=lambda name: ((dealt[name] + 0.5) / counts[name], name),
        )
        dealt[name] += 1
    return dealt


def _arc(start: float, ids: Sequence[str], count: int) -> list[str]:
    ring = sorted(ids, key=lambda one: (_hash(one), one))
    first = int(start * len(ring))
    return [ring[(first + step) % len(ring)] for step in range(min(count, len(ring)))]


def resize(size: int, base: int, *, usable: int, usable_in_base: int, total: int) -> int:
    """Return how large the aperture should be that is `size` now and should be `base`.

    `usable` of its pods can take work, `usable_in_base` of those that an aperture of `base` pods would have; there
    are `total` in the fleet. Below half of `base` it is doubled; it returns to `base` once three quarters of that
    are usable again.
    """
    wanted = min(base, total)
    if size > base and 4 * usable_in_base >= 3 * wanted:
        return base
    if 2 * usable < wanted and size < total:
        return min(2 * size, total)
    return size


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
