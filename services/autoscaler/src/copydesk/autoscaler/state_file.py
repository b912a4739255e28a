"""What a model has taught over days, kept over restarts: its season, how steeply it rises, the target that holds.

The file is replaced in one step. One that cannot be used (broken, of another model or version, for pods of another
capacity) is named, put aside under `.unusable`, and done without: what was learned is worth something, but nothing
depends on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.forecast import DAY, DAYS, UNKNOWN, Season
from copydesk.autoscaler.refinement import LEAST, MOST, Refinement
from copydesk.autoscaler.rules import Rules
from copydesk.autoscaler.state import State
from copydesk.autoscaler.target import DAY_MINUTES, steepest
from copydesk.common.errors import CopydeskError
from copydesk.common.whole_file import replace_file

VERSION = 1
LARGEST_FILE = 16 << 20
LARGEST = 1e15
"""Of any figure in it: sums of a day stay below, and beyond lie integers that no float can hold."""
REFINEMENT_S = 86_400.0
"""A factor that was found longer ago than this is no longer believed."""


class StateFileError(CopydeskError):
    """A file from which nothing can be taken; it carries path and reason."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The file. `concurrency` and `rate` are those of the pod in whose work the season is counted."""

    version: int
    model: str
    saved_at: float
    concurrency: float
    rate: float
    factor: float
    service_s: float
    ramps: tuple[float, ...]
    season: Season


@dataclass(frozen=True, slots=True)
class StateFile:
    """The file of one model in `folder`."""

    folder: Path
    model: str

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder / f"{self.model}.state.json"

    def save(self, state: State, capacity: Capacity, now: float) -> None:
        """Replace the file; raise `OSError` if that is impossible."""
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = _Saved(
            version=VERSION,
            model=self.model,
            saved_at=now,
            concurrency=capacity.concurrency,
            rate=capacity.rate,
            factor=state.refinement.factor,
            service_s=state.service_s,
            ramps=state.ramps,
            season=state.season,
        )
        replace_file(self.path, msgspec.json.encode(saved))

    def load(self, rules: Rules, capacity: Capacity, now: float) -> State | None:
        """Return the state to begin with, None without a file; raise `StateFileError` for one that is unusable."""
        try:
            if not self.path.exists():
                return None
            if self.path.stat().st_size > LARGEST_FILE:
                raise StateFileError(self.path, f"larger than {LARGEST_FILE} bytes")
            content = self.path.read_bytes()
        except OSError as error:
            raise StateFileError(self.path, error.strerror or str(error)) from error
        saved = self._decode(content)
        if (saved.concurrency, saved.rate) != (capacity.concurrency, capacity.rate):
            raise StateFileError(self.path, "it is about pods of another capacity")
        fresh = 0.0 <= now - saved.saved_at <= REFINEMENT_S
        return State(
            service_s=saved.service_s,
            ramps=saved.ramps,
            ramp=steepest(saved.ramps, rules.unseen_ramp) if saved.ramps else 0.0,
            season=saved.season,
            refinement=Refinement(factor=_factor(saved.factor, capacity) if fresh else 1.0),
        )

    def set_aside(self) -> None:
        """Move the file out of the way, as far as that is possible."""
        try:
            self.path.replace(self.path.with_name(f"{self.path.name}.unusable"))
        except OSError:
            return

    def _decode(self, content: bytes) -> _Saved:
        try:
            saved = msgspec.json.decode(content, type=_Saved)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise StateFileError(self.path, f"it is no state of an autoscaler: {error}") from error
        if (saved.version, saved.model) != (VERSION, self.model):
            raise StateFileError(self.path, f"it is of version {saved.version} and of model {saved.model!r}")
        fault = _fault(saved)
        if fault:
            raise StateFileError(self.path, f"{fault} cannot be")
        return saved


def restored(state: State, saved: State) -> State:
    """Return `state` with what was saved, for an autoscaler that has begun before it knew what a pod can do."""
    return replace(
        state,
        service_s=state.service_s or saved.service_s,
        ramps=saved.ramps,
        ramp=saved.ramp,
        season=saved.season,
        refinement=saved.refinement,
    )


def _factor(saved: float, capacity: Capacity) -> float:
    """Return a factor that the loop of this capacity might have found: it may be measured since."""
    if capacity.measured:
        return max(LEAST, saved)
    return min(1.0, max(1.0 / capacity.concurrency, saved))


def _fault(saved: _Saved) -> str:
    """Name what cannot be in a state, "" if nothing."""
    season = saved.season
    days = [value for day in (*season.past, season.today) for value in day]
    errors = [value for error in (*season.errors, season.wrong) for value in error]
    checks = {
        "factor": 0.0 < saved.factor <= MOST,
        "service_s": 0.0 <= saved.service_s < math.inf,
        "saved_at": math.isfinite(saved.saved_at),
        "ramps": len(saved.ramps) <= DAY_MINUTES and _sound(saved.ramps),
        "season.past": len(season.past) <= DAYS and all(len(day) == DAY for day in season.past),
        "season.today": len(season.today) == (season.minute or 0) % DAY,
        "season.minute": season.minute is None or 0 <= season.minute < 2**40,
        "season": _sound([value for value in days if value != UNKNOWN]),
        "season.total": _sound((season.total, season.count)),
        "season.levels": len(season.levels) <= DAY and _sound(season.levels),
        "season.errors": len(season.errors) <= DAYS and _sound(errors),
    }
    return next((name for name, sound in checks.items() if not sound), "")


def _sound(values: tuple[float, ...] | list[float]) -> bool:
    return all(0.0 <= value < LARGEST for value in values)
