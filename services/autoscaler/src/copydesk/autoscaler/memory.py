"""Keeps what models teach: it is read once for each model, and written each minute by the one that leads.

Files are dealt with in a thread, so that a disk that hangs holds up no decision for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from copydesk.autoscaler.pilot import Pilot
from copydesk.autoscaler.state import State
from copydesk.autoscaler.state_file import StateFile, StateFileError
from copydesk.common.telemetry import get_logger

EVERY_S = 60.0
DISK_SECONDS = 2.0

_log = get_logger(__name__)


class Memory:
    """The state files of all models, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recalled: set[str] = set()
        self._kept_at: dict[str, float] = {}
        self._complaint = ""
        self._writing: asyncio.Task[None] | None = None

    async def recall(self, pilot: Pilot, now: float) -> None:
        """Give a model what it had learned, once, as soon as it is known what its pods can do."""
        model, policy = pilot.plan.model, pilot.policy(now)
        if policy is None or model in self._recalled:
            return
        self._recalled.add(model)
        file = StateFile(self._folder, model)
        try:
            async with asyncio.timeout(DISK_SECONDS):
                saved = await asyncio.to_thread(file.load, policy.rules, policy.capacity, now)
        except StateFileError as error:
            _log.warning("state_unusable", model=model, path=str(error.path), reason=error.reason)
            file.set_aside()
        except TimeoutError:
            _log.warning("state_unusable", model=model, path=str(file.path), reason="the disk does not answer")
        else:
            self._restore(pilot, saved)

    async def keep_sometimes(self, pilot: Pilot, now: float) -> None:
        """Write a model's state, if that is due and the last writing has ended."""
        model = pilot.plan.model
        if now - self._kept_at.setdefault(model, now) < EVERY_S:
            return
        if self._writing is None or self._writing.done():
            self._kept_at[model] = now
            self._writing = asyncio.create_task(self._keep(pilot, now))

    async def keep(self, pilots: Sequence[Pilot], now: float) -> None:
        """Write all, for a short time at the most."""
        try:
            async with asyncio.timeout(DISK_SECONDS):
                for pilot in pilots:
                    await self._keep(pilot, now)
        except TimeoutError:
            _log.warning("state_unsaved", path=str(self._folder), reason="the disk does not answer")

    async def _keep(self, pilot: Pilot, now: float) -> None:
        policy = pilot.policy(now)
        if policy is None or pilot.plan.model not in self._recalled:
            return
        file = StateFile(self._folder, pilot.plan.model)
        try:
            await asyncio.to_thread(file.save, pilot.state, policy.capacity, now)
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self._complaint:
                self._complaint = reason
                _log.warning("state_unsaved", path=str(file.path), reason=reason)
        else:
            self._complaint = ""

    def _restore(self, pilot: Pilot, saved: State | None) -> None:
        if saved is None:
            return
        pilot.restore(saved)
        days, factor = len(saved.season.past), saved.refinement.factor
        _log.info("state_restored", model=pilot.plan.model, days=days, refinement=factor)
