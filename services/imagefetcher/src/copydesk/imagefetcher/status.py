"""What the node says of itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from copydesk.imagefetcher.control.messages import CacheStatus, ImageStatus, NodeStatus
from copydesk.imagefetcher.fetch.completion import Completion
from copydesk.imagefetcher.fetch.content import Content
from copydesk.imagefetcher.library import KnownImage, Library
from copydesk.imagefetcher.node import Node
from copydesk.imagefetcher.peers.directory import PeerDirectory
from copydesk.imagefetcher.store.sectors import SectorStore
from copydesk.imagefetcher.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Parts:
    """What the daemon consists of, as far as others look at it."""

    store: SectorStore
    library: Library
    content: Content
    node: Node
    completion: Completion
    directory: PeerDirectory


def node_status(parts: Parts, upstream: Upstream, *, node: str, holder: bool, resumed: bool) -> NodeStatus:
    """Everything at this moment; to be called on the event loop."""
    now = asyncio.get_running_loop().time()
    return NodeStatus(
        node=node,
        holder=holder,
        resumed=resumed,
        background=not parts.completion.paused,
        fetching=parts.content.fetcher.waiting,
        images=tuple(_image_status(parts, upstream, known, now) for known in parts.library.all()),
        broken=parts.node.broken,
        cache=_cache_status(parts.store),
    )


def _image_status(parts: Parts, upstream: Upstream, known: KnownImage, now: float) -> ImageStatus:
    sectors = known.index.data.sectors
    held = [sector for sector in sectors if sector.plain_digest in parts.store]
    return ImageStatus(
        image=known.image,
        reference=known.reference,
        original=known.index.image.digest,
        sectors=len(sectors),
        held_sectors=len(held),
        size=known.index.data.device_size,
        held_size=sum(sector.plain_length for sector in held),
        mounts=tuple(row.target for row in parts.node.mounts if row.image == known.image),
        sources=tuple(source.name for source in upstream.sources(known.reference)),
        peers=parts.directory.nodes(known.image, now),
        peer_sectors=parts.directory.sectors(known.image, now),
    )


def _cache_status(store: SectorStore) -> CacheStatus:
    counts = store.counts
    return CacheStatus(
        sectors=len(store),
        size=store.total,
        limit=store.limit,
        corrupt=counts.corrupt,
        evicted=counts.evicted,
        refused=counts.refused,
    )
