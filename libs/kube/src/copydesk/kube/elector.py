"""The leadership of replicas under Kubernetes: the rules of the lease, applied every moment to the API server."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from copydesk.common.telemetry import get_logger
from copydesk.kube.api import Api
from copydesk.kube.lease import (
    LARGEST_EPOCH,
    Move,
    Sighting,
    Term,
    claim,
    leads_until,
    next_move,
    read_lease,
    released,
    see,
    write_lease,
)
from copydesk.kube.objects import Lease
from copydesk.kube.trouble import KubernetesError, RefusedError, UnreachableError, is_denied

# A replica looks at the lease, and its holder renews it, this many times in its duration.
LOOKS = 4

NOT_FOUND = 404
CONFLICT = 409

# How long standing down may take, in seconds; without it, others wait until the lease is over.
RELEASE_SECONDS = 2.0

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Candidacy:
    """Who stands for which lease: `identity` is this run of this replica, `duration` in seconds."""

    namespace: str
    name: str
    identity: str
    duration: float


class LeaseLeadership:
    """Stands for election until closed. While the API server is away, a leader leads until its time is over."""

    def __init__(self, api: Api, candidacy: Candidacy, *, wall: Callable[[], float] = time.time) -> None:
        self._api = api
        self._candidacy = candidacy
        self._wall = wall
        self._collection = f"apis/coordination.k8s.io/v1/namespaces/{candidacy.namespace}/leases"
        self._path = f"{self._collection}/{candidacy.name}"
        self._sighting: Sighting | None = None
        self._term: Term | None = None
        self._until = 0.0
        self._epoch = 0
        self._last_epoch = 0
        self._complaint = ""
        self._task: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._on_change: Callable[[], None] = _ignore

    @property
    def epoch(self) -> int:
        """The epoch of the present or last term, in Unix milliseconds; 0 before the first."""
        return self._epoch

    def is_leader(self, now: float) -> bool:
        """Say whether this replica holds the lease, by its own clock, at `now` in monotonic seconds."""
        return self._term is not None and now < self._until

    def surpass(self, epoch: int) -> None:
        """Note that somebody has written under `epoch`; stand down if the present term's is smaller.

        Should the lease still be this replica's, it is taken anew, under an epoch that is larger still: that of a
        lease which was deleted, and made again by a clock that was set back, would never be heeded.
        """
        if epoch <= LARGEST_EPOCH:
            self._last_epoch = max(self._last_epoch, epoch)
        if self._term is not None and self._term.epoch < self._last_epoch:
            self._resign()

    async def start(self, on_change: Callable[[], None] | None = None) -> None:
        """Stand for election; a server that is not there is waited for."""
        self._on_change = on_change or _ignore
        self._task = asyncio.create_task(self._stand(), name="lease")

    async def close(self) -> None:
        """Give the lease back, if it is held and the server is there, and close the connections."""
        with contextlib.suppress(KubernetesError, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS), self._looking:
                # Never cuts a write off: that could take effect after the lease was given back.
                await self._stop()
                term = self._term
                self._resign()
                if term is not None:
                    await self._write(released(term))
        await self._stop()
        self._resign()
        await self._api.close()

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _stand(self) -> None:
        while True:
            try:
                async with self._looking, asyncio.timeout(self._candidacy.duration / 2):
                    await self._look()
                self._complaint = ""
            except TimeoutError:
                self._complain(UnreachableError("no answer in time"))
            except KubernetesError as error:
                self._complain(error)
            except Exception:  # a fault of this program must not leave the fleet without a publisher
                _log.exception("lease_failed", lease=self._candidacy.name)
            await asyncio.sleep(self._candidacy.duration / LOOKS * (0.9 + 0.2 * random.random()))

    async def _look(self) -> None:
        if self._term is not None:
            await self._renew(self._term)
            return
        await self._read()
        assert self._sighting is not None
        identity = self._candidacy.identity
        match next_move(self._sighting, identity, _now(), self._last_epoch):
            case Move.WAIT:
                return
            case Move.RENEW:  # a write of which the answer was lost
                assert self._sighting.term is not None
                await self._renew(self._sighting.term)
            case Move.TAKE | Move.CREATE:
                await self._take(self._sighting.term)

    async def _read(self) -> None:
        try:
            term = read_lease(await self._api.get(self._path, Lease))
        except RefusedError as error:
            if error.status != NOT_FOUND:
                raise
            term = None
        self._see(term)

    async def _take(self, before: Term | None) -> None:
        term = claim(before, self._candidacy.identity, self._candidacy.duration, self._wall(), self._last_epoch)
        await self._hold(term)

    async def _renew(self, term: Term) -> None:
        await self._hold(replace(term, duration=self._candidacy.duration))

    async def _hold(self, term: Term, *, again: bool = True) -> None:
        asked_at = _now()
        try:
            written = await self._write(term)
        except RefusedError as error:
            if error.status not in (CONFLICT, NOT_FOUND):
                raise
            await self._read()
            await self._yield_or_hold(again)
            return
        self._see(written)
        began = self._epoch != written.epoch or self._term is None
        self._term, self._epoch = written, written.epoch
        self._until = leads_until(asked_at, written)
        if began:
            _log.info("lease_held", lease=self._candidacy.name, epoch=self._epoch, transitions=written.transitions)
            self._on_change()

    async def _yield_or_hold(self, again: bool) -> None:
        """Decide after a conflict: the other writer may have been this replica, when the answer was lost."""
        assert self._sighting is not None
        term = self._sighting.term
        if again and term is not None and term.holder == self._candidacy.identity:
            await self._hold(replace(term, duration=self._candidacy.duration), again=False)
        else:
            self._resign()

    async def _write(self, term: Term) -> Term:
        lease = write_lease(term, self._candidacy.name, self._candidacy.namespace, self._wall())
        if not term.version:
            return read_lease(await self._api.create(self._collection, lease, Lease))
        return read_lease(await self._api.replace(self._path, lease, Lease))

    def _see(self, term: Term | None) -> None:
        self._sighting = see(self._sighting, term, _now())
        if term is not None:
            self._last_epoch = max(self._last_epoch, term.epoch)

    def _resign(self) -> None:
        if self._term is not None:
            self._term = None
            _log.info("lease_lost", lease=self._candidacy.name, epoch=self._epoch)
            self._on_change()

    def _complain(self, error: KubernetesError) -> None:
        if str(error) != self._complaint:
            self._complaint = str(error)
            event = "lease_denied" if is_denied(error) else "lease_out_of_reach"
            _log.warning(event, lease=self._candidacy.name, problem=self._complaint)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _ignore() -> None:
    pass
