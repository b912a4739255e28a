"""Where a process is in its life."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Lifecycle:
    """Whether the process is on its way out: then each answer asks its client to connect anew, elsewhere."""

    stopping: bool = False
