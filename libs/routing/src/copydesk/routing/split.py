"""Which of two versions of a model answers a request: by a hash, so that who was in stays in as the share grows.

The hash is FNV-1a over the rollout's name and the request's key (http://www.isthe.com/chongo/tech/comp/fnv/), and
then MurmurHash3's 64-bit finaliser, without which the first bits of similar keys would be alike. It is so plain
because the gateway's express lane computes it too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

_OFFSET = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_MASK = (1 << 64) - 1
_SECOND = 0x9E3779B97F4A7C15
"""What makes of one hash another one that is independent of it (the golden ratio's bits)."""


class Draw(enum.IntEnum):
    """Who answers, and whether the candidate is asked as well; the numbers are those of the express lane."""

    BASELINE = 1
    COPIED = 2
    CANDIDATE = 3


@dataclass(frozen=True, slots=True)
class Split:
    """How requests are divided: `share` of them to the candidate, `copied` of the others to both."""

    seed: int
    share: float
    copied: float

    @classmethod
    def of(cls, rollout: str, share: float, copied: float) -> Split:
        """Return the division of a rollout; another rollout draws others first."""
        return cls(_absorb(_OFFSET, rollout.encode() + b"\0"), share, copied)

    def draw(self, key: bytes) -> Draw:
        """Say what becomes of the request with this key: always the same for the same division."""
        hashed = _absorb(self.seed, key)
        if unit(hashed) < self.share:
            return Draw.CANDIDATE
        return Draw.COPIED if unit(hashed ^ _SECOND) < self.copied else Draw.BASELINE


def unit(hashed: int) -> float:
    """Spread a hash over [0, 1)."""
    hashed ^= hashed >> 33
    hashed = hashed * 0xFF51AFD7ED558CCD & _MASK
    hashed ^= hashed >> 33
    hashed = hashed * 0xC4CEB9FE1A85EC53 & _MASK
    hashed ^= hashed >> 33
    return (hashed >> 11) * 2.0**-53


def _absorb(state: int, data: bytes) -> int:
    for byte in data:
        state = (state ^ byte) * _PRIME & _MASK
    return state
