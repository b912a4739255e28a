"""What goes over the control socket."""

from __future__ import annotations

import msgspec


class MountRequest(msgspec.Struct, frozen=True):
    """`POST /v1/mounts`: mount the image `reference` at `target`; mounting again what is mounted is fine."""

    reference: str
    target: str


class UnmountRequest(msgspec.Struct, frozen=True):
    """`POST /v1/unmount`: with `detach` at once, even if somebody uses it."""

    target: str
    detach: bool = False


class PrefetchRequest(msgspec.Struct, frozen=True):
    """`POST /v1/prefetch`: fetch the sectors of the start-up, or with `everything` all, before anybody reads."""

    reference: str
    everything: bool = False


class BackgroundRequest(msgspec.Struct, frozen=True):
    """`POST /v1/background`: switch the completion of mounted images on or off, until the next start."""

    on: bool


class ImageStatus(msgspec.Struct, frozen=True):
    """One image: how much of it is cached, where it is mounted, who has it. Sizes are in bytes.

    `peers` have spoken of it lately, and `peer_sectors` is how many sectors one or another of them has.
    """

    image: str
    reference: str
    original: str
    sectors: int
    held_sectors: int
    size: int
    held_size: int
    mounts: tuple[str, ...]
    sources: tuple[str, ...]
    peers: int
    peer_sectors: int


class CacheStatus(msgspec.Struct, frozen=True):
    """The cache: `refused` counts what a full disk had no room for."""

    sectors: int
    size: int
    limit: int
    corrupt: int
    evicted: int
    refused: int


class NodeStatus(msgspec.Struct, frozen=True):
    """`GET /v1/status`. Without `holder`, no reader survives the daemon; `broken` are mounts and what is wrong."""

    node: str
    holder: bool
    resumed: bool
    background: bool
    fetching: int
    images: tuple[ImageStatus, ...]
    broken: dict[str, str]
    cache: CacheStatus


class MountAnswer(msgspec.Struct, frozen=True):
    """The answer to a mount: the image's digest on this node, and that of the original's manifest."""

    image: str
    original: str
    target: str


class PrefetchAnswer(msgspec.Struct, frozen=True):
    """The answer to a prefetch: how many sectors are on their way."""

    image: str
    fetching: int


class ClearAnswer(msgspec.Struct, frozen=True):
    """The answer to `POST /v1/cache/clear`: bytes freed, and images forgotten as nobody has them mounted."""

    freed: int
    forgotten: int


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Any answer other than 200: what went wrong, and what to do about it."""

    error: str
    hint: str = ""
