"""What containerd's CRI plugin says with a snapshot: which image and layer it is for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TARGET = "containerd.io/snapshot.ref"
_REFERENCE = "containerd.io/snapshot/cri.image-ref"
_MANIFEST = "containerd.io/snapshot/cri.manifest-digest"
_LAYERS = "containerd.io/snapshot/cri.image-layers"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that is being pulled: `target` names its snapshot, `last` says whether it is the uppermost."""

    target: str
    reference: str
    manifest: str
    last: bool

    @property
    def image(self) -> str:
        """The image by the digest of its manifest: a tag may move while it is pulled."""
        name = self.reference.partition("@")[0]
        head, colon, tag = name.rpartition(":")
        return f"{head if colon and '/' not in tag else name}@{self.manifest}"


def layer_of(labels: Mapping[str, str]) -> Layer | None:
    """Return which layer a snapshot is for, None where it is for a container or the caller says too little."""
    target, reference, manifest = (labels.get(label, "") for label in (TARGET, _REFERENCE, _MANIFEST))
    if not target or not reference or not manifest:
        return None
    # The label lists the layers from this one upwards, cut off where it would be too long.
    return Layer(target, reference, manifest, last="," not in labels.get(_LAYERS, ","))
