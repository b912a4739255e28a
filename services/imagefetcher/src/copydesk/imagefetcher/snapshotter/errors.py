"""What can be wrong with a request of containerd."""

from __future__ import annotations

from copydesk.imagefetcher.errors import ImageError


class SnapshotError(ImageError):
    """A request that cannot be served; `name` is the snapshot."""

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"snapshot {name}: {reason}")


class SnapshotExistsError(SnapshotError):
    """A name that is taken."""


class SnapshotMissingError(SnapshotError):
    """A name that is not known."""


class SnapshotStateError(SnapshotError):
    """Something that cannot be done with a snapshot as it is: it has children, or is of another kind."""
