"""What a snapshot is mounted from: pure, knows paths but touches none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from copydesk.imagefetcher.snapshotter.catalogue import Kind, Snapshot
from copydesk.imagefetcher.snapshotter.errors import SnapshotStateError
from copydesk.imagefetcher.snapshotter.labels import layer_of


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


def is_whole_image(snapshot: Snapshot) -> bool:
    """Whether a snapshot is the last layer of a lazily loaded image, and so all of it."""
    layer = layer_of(snapshot.labels)
    return bool(snapshot.image) and layer is not None and layer.last


def stack_of(ancestry: Sequence[Snapshot]) -> Stack:
    """Return what lies below a snapshot, given what it is based upon, the next below first.

    A lazily loaded image has all that its own layers are based upon. Raises SnapshotStateError where a layer is
    needed that was never downloaded, since it came as a part of such an image.
    """
    layers: list[int] = []
    for snapshot in ancestry:
        if is_whole_image(snapshot):
            return Stack(tuple(layers), snapshot.image)
        if snapshot.image:
            raise SnapshotStateError(
                snapshot.name,
                f"is a layer of {snapshot.image}, which is loaded lazily and has it in no other form: convert the "
                "image that needs it as well, or remove the other",
            )
        layers.append(snapshot.id)
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
