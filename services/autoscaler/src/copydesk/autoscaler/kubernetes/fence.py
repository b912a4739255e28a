"""The fence: how a leader that is paused, and wakes up late, is kept from resizing over its successor. Pure.

Only a write to the same object can fence a write. So the epoch of whoever resizes stands on the workload itself,
as the annotation `copydesk/scale-epoch`, and a resize is up to three requests, each about one version of it:

1. read it. A larger epoch: a newer leader has written, and this one leads no more.
2. If the epoch is smaller, put one's own there, provided that the object is still of the version read.
3. Write the Scale with the version that step 1 or 2 returned. A Scale has its workload's version, so the server
   refuses this write if *anything* about the workload was written since.

A successor does step 2 before its first resize, even if the size is to stay. That changes the version, and from
then on no version has an epoch below its own. Hence wherever a predecessor was paused, its next write conflicts,
it reads again, and finds the larger epoch. (Its Lease and its clock would tell it so, too; neither is relied on.)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from copydesk.autoscaler.kubernetes.objects import Mark, Marking, Workload
from copydesk.kube.lease import LARGEST_EPOCH

EPOCH = "copydesk/scale-epoch"
"""The annotation with the epoch of the leader that last resized, in Unix milliseconds as the Lease's."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A workload as it was read: its `version`, the `epoch` on it (0: none), and the pods that it asks for."""

    version: str
    epoch: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What the leader of `epoch` asks for. `told` is the size that it was told last, None if it never asked."""

    replicas: int
    epoch: int
    told: int | None = None


class Step(enum.StrEnum):
    """What to do about a wish."""

    FENCED = "fenced"
    OFF = "off"
    CLAIM = "claim"
    KEEP = "keep"
    MOVED = "moved"
    WRITE = "write"


def next_step(reading: Reading, wish: Wish) -> Step:
    """Decide.

    A size of 0 was set by a person, since limits begin at 1: the model is switched off, and stays so. And a fleet
    is shrunk only from the size that the wish was made for: once somebody else has resized it, the wish is out of
    date.
    """
    if reading.epoch > wish.epoch:
        return Step.FENCED
    if reading.replicas == 0:
        return Step.OFF
    if reading.epoch < wish.epoch:
        return Step.CLAIM
    if reading.replicas == wish.replicas:
        return Step.KEEP
    if reading.replicas > wish.replicas and wish.told not in (None, reading.replicas):
        return Step.MOVED
    return Step.WRITE


def read_workload(workload: Workload) -> Reading:
    """Understand a workload; an epoch that no leader can have had counts as none."""
    text = (workload.metadata.annotations or {}).get(EPOCH, "")
    epoch = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    return Reading(
        version=workload.metadata.resource_version,
        epoch=epoch if epoch <= LARGEST_EPOCH else 0,
        replicas=workload.spec.replicas,
    )


def claim(reading: Reading, epoch: int) -> Marking:
    """Return the change that puts `epoch` on the workload, if that is as it was read."""
    return Marking(Mark(resource_version=reading.version, annotations={EPOCH: str(epoch)}))
