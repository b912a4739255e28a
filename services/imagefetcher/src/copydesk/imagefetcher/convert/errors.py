"""What can be wrong with a layer or with a conversion."""

from __future__ import annotations

from copydesk.imagefetcher.errors import ImageError


class LayerError(ImageError):
    """A layer that cannot be used; `reason` says why, `path` names the entry (empty: the layer as a whole)."""

    hint = "Build the image again, or pull it with another tool to see whether it is at fault."

    def __init__(self, reason: str, path: bytes = b"") -> None:
        where = f"{path[:200].decode('utf-8', 'backslashreplace')}: " if path else ""
        super().__init__(f"layer: {where}{reason}")
        self.reason = reason
        self.path = path


class TarError(LayerError):
    """A layer that is no tar archive, or one that breaks off."""


class PathEscapeError(LayerError):
    """A layer's entry that cannot be put at a place within the image."""


class SpoolFullError(ImageError):
    """No space on the disk for what a conversion keeps there; `folder` says where."""

    hint = "Name a folder on a larger disk with --work-dir, or in TMPDIR."

    def __init__(self, folder: str) -> None:
        super().__init__(f"no space left in {folder}")
        self.folder = folder
