"""The gate that every request passes: who it is, whether it comes too often, and how many are inside."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager

from copydesk.gateway import faults
from copydesk.gateway.access.allowance import UNLIMITED, Allowance, allowance
from copydesk.gateway.cells import Cell, Cells, Count
from copydesk.gateway.faults import ApiError
from copydesk.gateway.keys import NO_LIMITS, KeyLimits, KeyRing
from copydesk.gateway.lane.resumption import Resuming
from copydesk.gateway.metrics import Family
from copydesk.gateway.rates import Meter

Release = Callable[[], None]
"""Says that a request has ended, or that its client did not wait for the decision. Calling it again does
nothing."""

ANYBODY = ""
"""The name of all clients together where keys are off."""


class Gatekeeper:
    """Lets requests in, by key and by limit. `default` are the limits of clients whose keys do not state them.

    Until `complete` says that all sources of keys have been read, an unknown key is not refused for good: its
    client is asked to come back.

    Requests inside are counted by this process alone, not in Redis. A count in Redis would need a lease for each
    request and its renewal, and a gateway that dies would hold its clients' places until the leases end; here it
    takes its counts along, nothing needs to be sent when a request ends, and the limit holds without Redis. The
    price is that a client may have its limit once on each gateway process.

    Who lets requests in by the same rules holds on to allowances and cells: `on_change` is called when allowances
    may be other ones, `on_prune` when a cell that was handed out by `inside_cell` may be nobody's any more.
    """

    def __init__(
        self,
        meter: Meter,
        default: KeyLimits = NO_LIMITS,
        *,
        new_cell: Callable[[], Count] = Cell,
        resuming: Resuming | None = None,
    ) -> None:
        self.ring: KeyRing | None = None
        self.complete = True
        self.meter = meter
        self._resuming = resuming or Resuming()
        self.on_change: Callable[[], None] | None = None
        self.on_prune: Callable[[], None] | None = None
        self._default = default
        self._allowances: dict[str, Allowance] = {}
        self._others = allowance(NO_LIMITS, default)
        self._inside = Cells(lambda: 0, new_cell, self._pruned)
        self._refused: dict[str, int] = defaultdict(int)

    def use(self, ring: KeyRing | None) -> None:
        """Let in the keys of `ring` from now on; None lets in anybody."""
        self.ring = ring
        stated = {} if ring is None else ring.limits
        self._allowances = {name: allowance(limits, self._default) for name, limits in stated.items()}
        if self.on_change is not None:
            self.on_change()

    def authorize(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the name of the client that sent these headers, by lower-case name; raises `ApiError`."""
        value = headers.get(b"authorization")
        return self.check(None if value is None else value.decode("latin-1"))

    def check(self, authorization: str | None) -> str:
        """Return the name of the client that sent this header, `""` where keys are off; raises `ApiError`."""
        if self.ring is None:
            return ANYBODY
        try:
            return self.ring.check(authorization)
        except ApiError:
            if self.complete or authorization is None:
                self._refused["key"] += 1
                raise
            self._refused["keys_unavailable"] += 1
        raise faults.keys_unavailable()

    def limited(self, client: str) -> bool:
        """Say whether requests of this client have to ask."""
        return self.allowance_of(client) is not UNLIMITED

    def allowance_of(self, client: str) -> Allowance:
        """Return what this client may do."""
        return self._allowances.get(client, self._others)

    def ask(self, visit: Visit) -> None:
        """Have `visit` admitted or refused; from within this call wherever the answer needs no Redis."""
        client = visit.client
        allowed = self.allowance_of(client)
        limit, rate = allowed.concurrency, allowed.rate
        if limit is not None:
            cell = self._inside.of(client)
            if cell.value >= limit:
                self._refused["concurrency"] += 1
                visit.refused(faults.too_many_concurrent(limit))
                return
            cell.value += 1
            visit.counted = True
        if rate is None or self._resuming.now is not None:
            visit.admitted()
        else:
            self.meter.spend(client, rate, visit.on_ruling)

    def enter(
        self, client: str, on_admitted: Callable[[], None], on_refused: Callable[[ApiError], None]
    ) -> Release:
        """Ask for a request to be let in.

        Exactly one of the callbacks is called, once; from within this call wherever the answer needs no Redis.
        Call what is returned when the request has ended. Called before the decision, it means that nobody waits
        for it any more: then neither callback is called.
        """
        visit = _Call(self, client, on_admitted, on_refused)
        self.ask(visit)
        return visit.leave

    @asynccontextmanager
    async def visit(self, client: str) -> AsyncIterator[None]:
        """Enter, and leave at the end; raises `ApiError` if the request is refused."""
        decided: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        release = self.enter(client, lambda: decided.set_result(None), decided.set_result)
        try:
            error = await decided
            if error is not None:
                raise error
            yield
        finally:
            release()

    def inside(self, client: str) -> int:
        """How many requests of a client with a limit on that are inside, or wait to be let in."""
        return self._inside.value(client)

    def inside_cell(self, client: str) -> Count:
        """Return where it stands how many are inside."""
        return self._inside.of(client)

    def families(self) -> Iterator[Family]:
        """What there is to count, for the metrics."""
        refused = [((("reason", reason),), count) for reason, count in self._refused.items()]
        yield "refused_total", "counter", "Requests refused by key or by a key's limits.", refused

    def count_refusal(self, error: ApiError) -> None:
        """Count a request that the meter did not let in."""
        self._refused["rate" if error.code == "rate_limited" else error.code] += 1

    def left(self, client: str) -> None:
        """A request has ended."""
        self._inside.of(client).value -= 1

    def _pruned(self) -> None:
        if self.on_prune is not None:
            self.on_prune()


class Visit(ABC):
    """One request at the gate or inside. `counted` is whether it counts as inside, which is the gatekeeper's."""

    __slots__ = ("_gatekeeper", "_gone", "client", "counted")

    def __init__(self, gatekeeper: Gatekeeper, client: str) -> None:
        self.client = client
        self.counted = False
        self._gatekeeper = gatekeeper
        self._gone = False

    @abstractmethod
    def admitted(self) -> None:
        """The request is let in."""

    @abstractmethod
    def refused(self, error: ApiError) -> None:
        """It is not; it counts as ended."""

    def on_ruling(self, error: ApiError | None) -> None:
        """The meter has decided."""
        if self._gone:
            return
        if error is None:
            self.admitted()
            return
        self._gatekeeper.count_refusal(error)
        self._end()
        self.refused(error)

    def leave(self) -> None:
        """The request has ended, or nobody waits for a decision any more. Again, it does nothing."""
        self._end()

    def _end(self) -> None:
        self._gone = True
        if self.counted:
            self.counted = False
            self._gatekeeper.left(self.client)


class _Call(Visit):
    """A visit whose outcome is told by callbacks, and they are forgotten: they may know the visit in turn."""

    __slots__ = ("_on_admitted", "_on_refused")

    def __init__(
        self,
        gatekeeper: Gatekeeper,
        client: str,
        on_admitted: Callable[[], None],
        on_refused: Callable[[ApiError], None],
    ) -> None:
        super().__init__(gatekeeper, client)
        self._on_admitted: Callable[[], None] | None = on_admitted
        self._on_refused: Callable[[ApiError], None] | None = on_refused

    def admitted(self) -> None:
        on_admitted = self._on_admitted
        self._forget()
        if on_admitted is not None:
            on_admitted()

    def refused(self, error: ApiError) -> None:
        on_refused = self._on_refused
        self._forget()
        if on_refused is not None:
            on_refused(error)

    def leave(self) -> None:
        self._end()
        self._forget()

    def _forget(self) -> None:
        self._on_admitted = self._on_refused = None
