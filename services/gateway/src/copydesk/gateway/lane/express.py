"""The express lane as a part of its gateway: what it must know, what it has counted, what it hands back.

The compiled half (`csrc/lane.hpp` says how it works) carries plain requests alone, and shares the ledgers of pods,
the places at the gate and the cells of clients with Python. Here it is told which pods to choose from and which
heads of requests it may take.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from math import isinf
from types import ModuleType
from typing import NamedTuple, Protocol

import msgspec

from copydesk.common.rpc import Channel
from copydesk.common.rpc.codec import DEFAULT_MAX_FRAME_BYTES
from copydesk.common.tracing import tracing
from copydesk.gateway.access import Gatekeeper
from copydesk.gateway.demand import LATENCY_BOUNDS
from copydesk.gateway.dispatch import Dispatcher
from copydesk.gateway.entrance import Entrance
from copydesk.gateway.faults import CLIENT_GONE, ApiError
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.gate import PlaceCounts
from copydesk.gateway.http.exchange import Exchange, header
from copydesk.gateway.lane.parser import LaneParser
from copydesk.gateway.lane.resumption import Resumption
from copydesk.gateway.lane.seams import Connection, Port, Seat
from copydesk.gateway.lifecycle import Lifecycle
from copydesk.gateway.link import Link
from copydesk.gateway.metrics import LATENCY_BUCKETS, Family, Metrics, regrouped
from copydesk.gateway.paths import CHAT_COMPLETIONS, COMPLETIONS, CORRECT
from copydesk.gateway.pod import Pod
from copydesk.gateway.rates import LocalMeter
from copydesk.gateway.settings import GatewaySettings
from copydesk.gateway.validation import (
    DEADLINE_HEADER,
    PRIORITY_HEADER,
    SESSION_HEADER,
    parse_deadline,
    parse_priority,
)
from copydesk.routing import Draw, Split

FORMS = (COMPLETIONS, CHAT_COMPLETIONS, CORRECT)
"""The paths by the numbers that the compiled half has for them."""

BUCKETS = tuple(sorted({*LATENCY_BUCKETS, *LATENCY_BOUNDS}))
"""The bounds of the lane's one histogram, of which both that are told to others can be made."""

MOST_HEADS = 4_000
"""Heads that are known at once, of some hundred bytes each; when there are more, all go."""

_DEADLINE = DEADLINE_HEADER.lower().encode()
_PRIORITY = PRIORITY_HEADER.lower().encode()
_SESSION = SESSION_HEADER.lower().encode()


class Ended(NamedTuple):
    """Requests that ended alike: how many, the seconds that they took, and their histogram by `BUCKETS`."""

    number: int
    seconds: float
    buckets: list[int]


class Served(Protocol):
    """What the lane needs of the gateway that it is a part of."""

    settings: GatewaySettings
    dispatcher: Dispatcher
    fleet: Fleet
    gatekeeper: Gatekeeper
    metrics: Metrics
    lifecycle: Lifecycle
    entrance: Entrance


class ExpressLane:
    """Carries plain requests of one gateway; make it on the gateway's event loop."""

    def __init__(self, native: ModuleType, gateway: Served, places: PlaceCounts) -> None:
        self.on_forget: Callable[[], None] | None = None
        self._native = native
        self._settings = gateway.settings
        self._dispatcher = gateway.dispatcher
        self._fleet = gateway.fleet
        self._gatekeeper = gateway.gatekeeper
        self._metrics = gateway.metrics
        self._lifecycle = gateway.lifecycle
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._underway = 0
        self._spent = 0.0
        self._endings = dict.fromkeys(("answered", "client_gone", "handed_back"), 0)
        self._lane = native.Lane(
            places=places,
            model=self._settings.model.encode(),
            model_json=msgspec.json.encode(self._settings.model),
            most_body=self._settings.max_body_bytes,
            most_characters=min(self._settings.max_sentence_characters, self._settings.limits.characters),
            token=b"req-" + secrets.token_hex(6).encode(),
            seed=secrets.randbits(63) | 1,
            bounds=BUCKETS,
            resume=self._resume,
            wake=self._wake,
            alarm=self._set_alarm,
            let_in=self._dispatcher.gate.let_in,
        )
        self._forms = {path: form for form, path in enumerate(FORMS)}
        if not self._takes_corrections():
            del self._forms[CORRECT]
        if gateway.entrance.sentences.underway is not None:
            self._lane.share(gateway.entrance.sentences.underway)
        self._connect()

    def _takes_corrections(self) -> bool:
        """Whether nothing is asked for sentences that the lane does not know: a memory, or a second pod."""
        return self._settings.cache == "off" and not self._fleet.balancing.hedge

    @property
    def active(self) -> bool:
        """Whether it takes requests."""
        return bool(self._lane.active)

    @property
    def underway(self) -> int:
        """Requests that it has."""
        return int(self._lane.underway)

    def seat(self, connection: Connection, transport: asyncio.Transport) -> Seat:
        """Return what takes requests off a client's connection."""
        seat: Seat = self._native.Seat(lane=self._lane, owner=connection, write=transport.write)
        return seat

    def open_port(self, pod: Pod, channel: Link) -> Port | None:
        """Share the connection to a pod; None where it does not speak frames."""
        if not isinstance(channel, Channel):
            return None
        port: Port = self._native.Port(
            lane=self._lane,
            owner=pod,
            account=pod.ledger,
            write=channel.write,
            digest=channel.peer.digest.encode(),
            most=DEFAULT_MAX_FRAME_BYTES,
        )
        channel.tap(LaneParser(port))
        return port

    def refresh(self) -> None:
        """The fleet has changed, or some time has passed."""
        fleet = self._fleet
        started = self._lane.take_started()
        if started:
            self._dispatcher.budget.request(self._loop.time(), started)
            self.settle()
        near = [pod.port for pod in fleet.near]
        far = [pod.port for pod in fleet.far]
        if None in near or None in far or tracing.on or self._lifecycle.stopping:
            self._lane.active = False
            return
        self._lane.choose_from(near, far, fleet.allowance, fleet.balancing.spillover)
        self._lane.active = True

    def learn(self, head: bytes, exchange: Exchange) -> None:
        """Take requests with this head from now on, as `exchange`, which had it, was let in."""
        if exchange.path not in self._forms:
            return
        meter, allowed = self._gatekeeper.meter, self._gatekeeper.allowance_of(exchange.client)
        local = meter if isinstance(meter, LocalMeter) else None
        if allowed.rate is not None and local is None:
            return
        try:
            deadline_ms = parse_deadline(
                header(exchange, _DEADLINE), self._settings.deadline_ms, self._settings.limits
            )
            priority = parse_priority(header(exchange, _PRIORITY), None)
        except ApiError:
            return
        if self._lane.heads >= MOST_HEADS:
            self.forget()
        inside = None if allowed.concurrency is None else self._gatekeeper.inside_cell(exchange.client)
        due = None if allowed.rate is None or local is None else local.due_cell(exchange.client)
        self._lane.learn(
            head=head,
            form=self._forms[exchange.path],
            priority=priority,
            allowed=deadline_ms / 1000,
            inside=inside,
            concurrency=allowed.concurrency or 0,
            session=exchange.headers.get(_SESSION, b""),
            due=due,
            interval=allowed.rate.interval if allowed.rate else 0,
            burst=allowed.rate.burst if allowed.rate else 0,
        )

    def divide(self, split: Split | None) -> None:
        """Leave to Python what is not for the baseline alone; None divides nothing."""
        if split is None:
            self._lane.divide(0, 0.0, 0.0)
        else:
            self._lane.divide(split.seed, split.share, split.copied)

    def take_draw(self) -> Draw | None:
        """Return, once, what was drawn for the request that the lane has left last; None if nothing was."""
        drawn = int(self._lane.take_drawn())
        return Draw(drawn) if drawn else None

    def forget(self) -> None:
        """Who may come in has changed: heads have to be learned anew."""
        self._lane.forget()
        if self.on_forget is not None:
            self.on_forget()

    def settle(self) -> None:
        """Put what has been counted where all counts are."""
        forms, latencies, sentences, (handed_back, handed_back_after) = self._lane.drain()
        for path, (answered, gone) in zip(FORMS, forms, strict=True):
            self._absorb(path, Ended(*answered), Ended(*gone))
        self._endings["handed_back"] += handed_back
        self._spent += handed_back_after
        self._metrics.work.latency.absorb(latencies)
        self._fleet.health.absorb(sentences)
        underway = self.underway
        self._metrics.in_flight += underway - self._underway
        self._underway = underway

    def spent(self, now: float) -> float:
        """Return the seconds that its requests have been at pods, added up, those of the ones underway too."""
        self.settle()
        return self._spent + float(self._lane.underway_seconds(now))

    def families(self) -> Iterator[Family]:
        """What there is to count, for the metrics."""
        endings = [((("ending", ending),), count) for ending, count in self._endings.items()]
        yield "lane_requests_total", "counter", "Requests that the compiled lane has carried, by how.", endings
        active = "Whether the compiled lane takes requests."
        yield "lane_active", "gauge", active, [((), float(self.active))]

    def stop(self) -> None:
        """Take nothing more, and hand back what is underway: answers now ask their clients to leave."""
        self._lane.active = False
        self._lane.recall()

    def close(self) -> None:
        """Forget everything."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._lane.close()

    def _connect(self) -> None:
        self._metrics.include(self.families)
        self._dispatcher.demand.include(self.spent)
        self._fleet.open_port = self.open_port
        self._dispatcher.on_refresh = self.refresh
        self._lifecycle.on_stop = self.stop
        self._gatekeeper.on_change = self._gatekeeper.on_prune = self.forget
        if isinstance(self._gatekeeper.meter, LocalMeter):
            self._gatekeeper.meter.on_prune = self.forget

    def _absorb(self, path: str, answered: Ended, gone: Ended) -> None:
        if not answered.number and not gone.number:
            return
        for code, ended in ((200, answered), (CLIENT_GONE, gone)):
            buckets = regrouped(ended.buckets, BUCKETS, LATENCY_BUCKETS)
            self._metrics.absorb(path, code, ended.number, ended.seconds, buckets)
        self._dispatcher.demand.absorb(regrouped(answered.buckets, BUCKETS, LATENCY_BOUNDS), answered.seconds)
        self._endings["answered"] += answered.number
        self._endings["client_gone"] += gone.number
        self._spent += answered.seconds + gone.seconds

    def _wake(self) -> None:
        self._loop.call_soon(self._lane.flush)

    def _set_alarm(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(when, self._sweep)

    def _sweep(self) -> None:
        self._alarm = None
        earliest = self._lane.sweep(self._loop.time())
        if not isinf(earliest) and self._alarm is None:
            self._alarm = self._loop.call_at(earliest, self._sweep)

    def _resume(
        self,
        connection: Connection,
        pod: Pod,
        data: bytes,
        frame_id: int,
        sent_at: float,
        deadline: float,
        name: str,
    ) -> bool:
        resuming = self._dispatcher.resuming
        resuming.now = found = Resumption(pod, frame_id, sent_at, deadline, name)
        try:
            connection.resume(data)
        finally:
            resuming.now = None
        return found.taken
