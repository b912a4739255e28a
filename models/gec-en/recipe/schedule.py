"""The plan of a training, in a file that is read again and again, so that it can be changed while it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_LEAST = 0.01
"""The share of the learning rate that is kept to the end."""


@dataclass(frozen=True)
class Schedule:
    """What to train on, how fast, and until when.

    The rate rises over the first `warmup` steps, stays at `rate`, and falls in a line over the last `fall` minutes
    before `until` (ISO 8601, local time). `decay` is that of the running average of the adapter, by step.
    """

    pairs: str
    until: str
    rate: float = 5e-4
    fall: float = 60.0
    warmup: int = 40
    decay: float = 0.99
    edit_weight: float = 1.5

    @property
    def end(self) -> float:
        """The end, in seconds since 1970."""
        return datetime.fromisoformat(self.until).timestamp()

    def rate_at(self, now: float, step: int) -> float:
        """The learning rate of a step, by the clock and by the steps of this run before it."""
        rise = min(1.0, (step + 1) / self.warmup)
        left = (self.end - now) / (60 * self.fall)
        return self.rate * rise * min(1.0, max(_LEAST, left))


class ScheduleFile:
    """Reads the file anew when it was written to; keeps the last good plan while it is being edited."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at = path.stat().st_mtime_ns
        self._now = _parse(path)

    def read(self) -> Schedule:
        """The plan as it is now."""
        written = self._path.stat().st_mtime_ns
        if written != self._read_at:
            try:
                self._now, self._read_at = _parse(self._path), written
            except (ValueError, TypeError) as error:
                print(f"{self._path}: {error}; the last plan stands", flush=True)
        return self._now


def _parse(path: Path) -> Schedule:
    schedule = Schedule(**json.loads(path.read_text(encoding="utf-8")))
    if schedule.rate_at(0.0, 0) <= 0 or schedule.end <= 0 or not 0 <= schedule.decay < 1:
        raise ValueError(f"no plan: {schedule}")
    return schedule
