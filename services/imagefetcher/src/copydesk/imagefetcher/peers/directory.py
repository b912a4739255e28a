"""Who has which sectors, as far as this node has been told: pure, time is passed in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from copydesk.common.messages import BlocksReport
from copydesk.imagefetcher.peers.bitmap import count, holds

EXPIRY_S = 30.0
"""After so long without a word a node counts as gone; it speaks every ten seconds."""
MOST_NODES = 256
"""More nodes of one image are not remembered: a few are enough to fetch from."""

MOST_NAME = 253
MOST_BYTES = 64 << 10
"""A bitmap of half a million sectors, of 2 TiB."""
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")


@dataclass(frozen=True, slots=True)
class Peer:
    """A node that can be asked."""

    node: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class _Statement:
    report: BlocksReport
    heard: float


class PeerDirectory:
    """Statements about images that this node watches; all others are ignored, so that it stays small."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._statements: dict[str, dict[str, _Statement]] = {}

    def watch(self, images: set[str]) -> set[str]:
        """Heed statements about these images only; return those that were not watched before."""
        new = images - self._statements.keys()
        self._statements = {image: self._statements.get(image, {}) for image in images}
        return new

    def hear(self, report: BlocksReport, now: float) -> bool:
        """Take note of a statement unless it is our own, older than what is known, or about an unwatched image."""
        nodes = self._statements.get(report.image)
        if nodes is None or report.node == self._node or not _makes_sense(report):
            return False
        known = nodes.get(report.node)
        if known is not None and _age(report) <= _age(known.report) and now - known.heard < EXPIRY_S:
            return False
        if known is None and len(nodes) >= MOST_NODES and not self._make_room(nodes, now):
            return False
        nodes[report.node] = _Statement(report, now)
        return True

    def holders(self, image: str, number: int, now: float) -> list[Peer]:
        """Who says to have sector `number` of an image."""
        return [
            Peer(said.report.node, said.report.host, said.report.port)
            for said in self._statements.get(image, {}).values()
            if now - said.heard < EXPIRY_S and holds(said.report.held, number)
        ]

    def nodes(self, image: str, now: float) -> int:
        """How many nodes have spoken of an image lately."""
        return sum(now - said.heard < EXPIRY_S for said in self._statements.get(image, {}).values())

    def sectors(self, image: str, now: float) -> int:
        """How many sectors of an image one node or another says to have."""
        return count(
            said.report.held for said in self._statements.get(image, {}).values() if now - said.heard < EXPIRY_S
        )

    @staticmethod
    def _make_room(nodes: dict[str, _Statement], now: float) -> bool:
        gone = [node for node, said in nodes.items() if now - said.heard >= EXPIRY_S]
        for node in gone:
            del nodes[node]
        return bool(gone)


def _makes_sense(report: BlocksReport) -> bool:
    """Whether it names an address and nothing else: anybody on NATS can say anything, even a whole URL."""
    return (
        len(report.node) <= MOST_NAME
        and _HOST.fullmatch(report.host) is not None
        and 0 < report.port < 1 << 16
        and len(report.held) <= MOST_BYTES
    )


def _age(report: BlocksReport) -> tuple[float, int]:
    return report.started_at, report.sequence
