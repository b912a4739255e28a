"""What a snapshot is mounted from: pure, knows paths but touches none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from copydesk.imagefetcher.snapshotter.catalogue import Kind, Snapshot
from copydesk.imagefetcher.snapshotter.errors import SnapshotStateError


@dataclass(frozen=True, slots=True)
class MountSpec:
    """One mount for containerd to make."""

    kind: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """What lies below a snapshot: layers of its own kind, the upper first, then possibly a lazily loaded image."""

    layers: tuple[int, ...]
    image: str = ""


def missing_layer(ancestry: Sequence[Snapshot]) -> int | None:
    """Return which of these snapshots, the upper first, is needed but is only a part of a lazily loaded image."""
    for at, snapshot in enumerate(ancestry):
        if snapshot.whole:
            return None
        if snapshot.image:
            return at
    return None


def stack_of(ancestry: Sequence[Snapshot]) -> Stack:
    """Return what lies below a snapshot, given what it is based upon, the next below first.

    A whole one has all that is below it. Raises SnapshotStateError where a layer is missing.
    """
    layers: list[int] = []
    for snapshot in ancestry:
        if snapshot.whole and snapshot.image:
            return Stack(tuple(layers), snapshot.image)
        if snapshot.image:
            raise SnapshotStateError(snapshot.name, f"is only there as a part of {snapshot.image}")
        layers.append(snapshot.id)
        if snapshot.whole:
            break
    return Stack(tuple(layers))


def mounts_of(folder: Path, snapshot: Snapshot, below: Sequence[Path]) -> list[MountSpec]:
    """Return the mounts of an active snapshot or view with these folders below it, the upper first."""
    own = folder / str(snapshot.id)
    writable = snapshot.kind is Kind.ACTIVE
    if not below:
        return [MountSpec("bind", str(own / "fs"), ("rw" if writable else "ro", "rbind"))]
    if not writable and len(below) == 1:
        return [MountSpec("bind", str(below[0]), ("ro", "rbind"))]
    lower = f"lowerdir={':'.join(map(str, below))}"
    if not writable:
        return [MountSpec("overlay", "overlay", ("index=off", lower))]
    return [
        MountSpec("overlay", "overlay", ("index=off", f"workdir={own / 'work'}", f"upperdir={own / 'fs'}", lower))
    ]
