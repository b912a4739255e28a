"""In which order sources are asked, given how they have done lately: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from copydesk.common.backoff import backoff_seconds
from copydesk.imagefetcher.fetch.source import Source, SourceKind

FIRST_REST_S = 1.0
LONGEST_REST_S = 30.0
PEERS_ASKED = 2
"""More peers than these are not asked for one sector: a registry that works is sooner than a row that does not."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a source has done: failures in a row, and until when it is left alone (monotonic seconds)."""

    failures: int = 0
    rests_until: float = 0.0

    def after_failure(self, now: float, share: float) -> Standing:
        """The standing after another failure; `share`, random in [0, 1], spreads the return."""
        rest = backoff_seconds(self.failures, first=FIRST_REST_S, cap=LONGEST_REST_S, share=share)
        return Standing(self.failures + 1, now + rest)


def in_order(
    sources: Sequence[Source], standings: Mapping[str, Standing], now: float, shares: Sequence[float]
) -> list[Source]:
    """Return whom to ask, and in which order: peers, then mirrors in their order, then the registry.

    A peer that rests is not asked. Any other source that rests is asked last, since who has nothing better may as
    well try. `shares`, random numbers one a source, spread what is asked of peers over them.
    """
    fit = [source for source in sources if not _rests(source, standings, now)]
    tired = [source for source in sources if _rests(source, standings, now) and source.kind is not SourceKind.PEER]
    peers = [
        (share, at)
        for at, (source, share) in enumerate(zip(sources, shares, strict=True))
        if source.kind is SourceKind.PEER and source in fit
    ]
    asked = [sources[at] for _, at in sorted(peers)[:PEERS_ASKED]]
    others = sorted((source for source in fit if source.kind is not SourceKind.PEER), key=lambda each: each.kind)
    return [*asked, *others, *sorted(tired, key=lambda each: each.kind)]


def _rests(source: Source, standings: Mapping[str, Standing], now: float) -> bool:
    standing = standings.get(source.name)
    return standing is not None and now < standing.rests_until
