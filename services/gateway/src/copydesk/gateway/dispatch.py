"""One request on its way: to a pod, to another one if that fails, and back by callback.

Callbacks rather than tasks: at thousands of requests a second a task each would cost more than the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from copydesk.common.rpc import Fault, Priority, Response, Status
from copydesk.common.tasks import CorrectSentence
from copydesk.common.tracing import tracing
from copydesk.gateway import faults
from copydesk.gateway.attempt import Attempt
from copydesk.gateway.demand import Demand
from copydesk.gateway.faults import ApiError
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.gate import Gate, PlaceCounts
from copydesk.gateway.lane.resumption import Resuming, Resumption
from copydesk.gateway.metrics import Family, Metrics
from copydesk.gateway.pod import Pod
from copydesk.gateway.routing_metrics import REFUSED_BY_BUDGET, RoutingMetrics
from copydesk.routing import Ending, RetryBudget

BOUNDED_FAULTS = frozenset({"connection_lost", "draining", "engine_unavailable"})
"""Failures that come at most once for each request in flight, so that retrying them cannot become a storm.

After the first of them the pod gets nothing more until it is ready again.
"""

_TOLD_BY_THE_CHANNEL = frozenset({"connection_lost", "draining"})
_SAID_HERE = frozenset({"connection_lost", "deadline_exceeded"})
"""Faults that come from this end of the connection: they carry no word of the pod."""

SHORTEST_BREAK, LONGEST_BREAK = 0.1, 1.0
"""For how many seconds a pod that was full counts as full, at least and at most, whatever it says itself."""

NO_FAULT = Fault("unknown", "no reason given")

_ENDINGS = {
    Status.OVERLOADED: Ending.REFUSED,
    Status.INVALID: Ending.REFUSED,
    Status.CANCELLED: Ending.ABANDONED,
    # The deadline is the client's: a short one says nothing about the pod, but the time it had taken counts.
    Status.DEADLINE_EXCEEDED: Ending.EXPIRED,
}

_ELSEWHERE = frozenset({Status.UNAVAILABLE, Status.OVERLOADED, Status.INTERNAL})
"""What one pod says that another may not say."""

SENTENCE = msgspec.msgpack.encode(CorrectSentence(""))[:-1]
"""How the payload of a sentence to correct begins. These are much of a length: how long one takes says
something of its pod. How long a text takes to write is up to the text."""


class Delivery(msgspec.Struct, frozen=True):
    """A pod's answer: the payload as it came, and the digest of the weights that made it."""

    payload: msgspec.Raw
    digest: str


OnDone = Callable[[Delivery | ApiError], None]
OnChunk = Callable[[msgspec.Raw], None]


class Dispatcher:
    """Sends requests to the fleet; when no pod is ready, waits `endpoint_wait` seconds for one."""

    def __init__(
        self,
        fleet: Fleet,
        budget: RetryBudget,
        metrics: Metrics,
        *,
        endpoint_wait: float,
        places: PlaceCounts | None = None,
    ) -> None:
        self.fleet = fleet
        self.budget = budget
        self.metrics = metrics
        self.endpoint_wait = endpoint_wait
        self.routing = RoutingMetrics()
        self.resuming = Resuming()
        self.on_refresh: Callable[[], None] | None = None
        self.gate = Gate(fleet, self.routing, places)
        self.loop = asyncio.get_running_loop()
        self.demand = Demand(self.loop.time())
        fleet.on_refresh = self._on_refresh
        metrics.include(self._families)

    def submit(
        self,
        payload: bytes,
        deadline: float,
        on_done: OnDone,
        *,
        priority: Priority = Priority.INTERACTIVE,
        on_chunk: OnChunk | None = None,
    ) -> Dispatch:
        """Start one request, a msgpack `Task`; `deadline` is in the loop's time.

        `on_done` is called exactly once and never from within this call; after `Dispatch.cancel` it is not called.
        `on_chunk` is called before it with each part of the answer as it comes. When the fleet is full the request
        waits for its turn, batch work behind interactive work; what then cannot be in time is refused.
        """
        resumed = self.resuming.take()
        if resumed is not None:
            return self.resume(payload, on_done, resumed, priority)
        now = self.loop.time()
        self.budget.request(now)
        dispatch = Dispatch(self, payload, now, deadline, on_done, priority, on_chunk)
        if self.gate.enter():
            dispatch.start(now)
        else:
            dispatch.queue_up(now)
        return dispatch

    def resume(self, payload: bytes, on_done: OnDone, resumed: Resumption, priority: Priority) -> Dispatch:
        """Go on with a request that somebody else has sent, as if it had been submitted here.

        Everything has been counted: at the gate, by the budget, and in the ledger of the pod, where it is timed if
        its payload is a sentence's. `on_done` is called as for `submit`. A request in parts cannot be resumed.
        """
        dispatch = Dispatch(self, payload, resumed.sent_at, resumed.deadline, on_done, priority, None)
        dispatch.resume(resumed.pod, resumed.frame_id, resumed.sent_at)
        return dispatch

    def _families(self) -> Iterable[Family]:
        gate = self.gate
        yield from self.routing.families(self.fleet, underway=gate.underway, queued=len(gate.queue))
        yield from self.demand.families(self.loop.time())

    def _on_refresh(self) -> None:
        if self.on_refresh is not None:
            self.on_refresh()
        self.gate.refresh(self.loop.time())


class Dispatch:
    """One request underway: at the gate, waiting for a pod, or on one pod, or (hedged) on two."""

    __slots__ = (
        "_arrived",
        "_attempts",
        "_deadline",
        "_dispatcher",
        "_done",
        "_entered",
        "_hedge",
        "_last",
        "_on_chunk",
        "_on_done",
        "_payload",
        "_priority",
        "_queued",
        "_span",
        "_streaming",
        "_timed",
        "_timer",
        "_tried",
        "_wait_until",
        "_waiter",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        payload: bytes,
        arrived: float,
        deadline: float,
        on_done: OnDone,
        priority: Priority,
        on_chunk: OnChunk | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._payload = payload
        self._arrived = arrived
        self._deadline = deadline
        self._on_done = on_done
        self._priority = priority
        self._on_chunk = on_chunk
        self._timed = payload.startswith(SENTENCE)
        self._done = self._entered = self._streaming = self._queued = False
        self._attempts: list[Attempt] = []
        self._tried: tuple[str, ...] = ()
        self._last: ApiError | None = None
        self._waiter: object | None = None
        self._wait_until: float | None = None
        self._timer: asyncio.Handle | None = None
        self._hedge: asyncio.Handle | None = None
        trace = tracing.here
        self._span = tracing.start("dispatch", trace) if trace else None

    def start(self, now: float) -> None:
        """Make the first attempt; the gate has been passed."""
        self._entered = True
        if self._deadline <= now:
            self._finish_soon(self._late())
            return
        self._send_or_wait()

    def resume(self, pod: Pod, request_id: int, started_at: float) -> None:
        """Take the first attempt over from whoever has made it; the gate has been passed."""
        dispatcher = self._dispatcher
        attempt = Attempt.resume(
            self,
            pod,
            request_id,
            at_pods=dispatcher.demand.at_pods,
            started_at=started_at,
            deadline=self._deadline,
            now=dispatcher.loop.time(),
            timed=self._timed,
        )
        self._entered = True
        self._tried = (pod.id,)
        self._attempts.append(attempt)
        if dispatcher.fleet.balancing.hedge:
            self._arm_hedge(started_at)

    def queue_up(self, now: float) -> None:
        """Wait at the gate, unless that is in vain."""
        if self._deadline <= now:
            self._finish_soon(self._late())
            return
        refusal = self._dispatcher.gate.wait(self, self._priority, self._deadline, now)
        if refusal is not None:
            self._finish_soon(refusal)
        else:
            self._begin_waiting(now)
            self._timer = self._dispatcher.loop.call_at(self._deadline, self._expire_at_gate)

    def admitted(self) -> None:
        """The gate is open."""
        self._stop_waiting()
        self.start(self._dispatcher.loop.time())

    def refused(self, error: ApiError) -> None:
        """The gate stays shut."""
        self._stop_waiting()
        self._finish_soon(error)

    def cancel(self) -> None:
        """Give the request up; its pod is told."""
        if not self._done:
            self._end("cancelled")

    def on_reply(self, attempt: Attempt, response: Response) -> None:
        """An attempt has come to its end."""
        dispatcher = self._dispatcher
        now = dispatcher.loop.time()
        dispatcher.metrics.sentence(response.status)
        self._attempts.remove(attempt)
        if response.status is Status.OK:
            attempt.pod.hear(response.load, now)
            attempt.close(Ending.ANSWERED, now)
            dispatcher.demand.answered(now - self._arrived, now - attempt.started_at)
            if self._timed:
                dispatcher.fleet.health.observe((now - attempt.started_at) * 1000.0)
            self._finish(Delivery(response.payload, attempt.digest))
        else:
            self._on_fault(attempt, response, response.fault or NO_FAULT, now)

    def on_part(self, attempt: Attempt, part: msgspec.Raw) -> None:
        """A part of the answer: from now on no other pod will do."""
        now = self._dispatcher.loop.time()
        attempt.pod.ledger.speak(now)
        if not self._streaming:
            self._streaming = True
            self._stop_hedging()
            for other in [other for other in self._attempts if other is not attempt]:
                self._attempts.remove(other)
                other.cancel(now)
        if self._on_chunk is not None:
            self._on_chunk(part)

    def on_silence(self, attempt: Attempt) -> None:
        """The pod has been ejected because it hangs: see whether another one is faster, and cling to neither."""
        if attempt.open:
            self._try_beside("silence")

    def _send_or_wait(self) -> None:
        pod = self._dispatcher.fleet.pick(self._tried)
        if pod is None:
            self._wait()
        else:
            self._send(pod)

    def _send(self, pod: Pod) -> None:
        dispatcher = self._dispatcher
        now = dispatcher.loop.time()
        self._tried += (pod.id,)
        attempt = Attempt(
            self,
            pod,
            self._payload,
            at_pods=dispatcher.demand.at_pods,
            deadline=self._deadline,
            now=now,
            timed=self._timed,
            priority=self._priority,
            parts=self._on_chunk is not None,
            trace=self._span.traceparent if self._span is not None else "",
        )
        self._attempts.append(attempt)
        if dispatcher.fleet.balancing.hedge and self._hedge is None:
            self._arm_hedge(now)

    def _arm_hedge(self, started_at: float) -> None:
        after = self._dispatcher.fleet.health.slow
        if after is not None and self._timed and len(self._tried) == 1:
            self._hedge = self._dispatcher.loop.call_at(started_at + after, self._try_beside, "slow")

    def _try_beside(self, reason: str) -> None:
        """Ask one other pod as well, if there is one and the budget allows it; the first to answer wins."""
        dispatcher = self._dispatcher
        if self._done or self._streaming or not self._attempts or len(self._tried) > 1:
            return
        other = dispatcher.fleet.pick(self._tried)
        if other is None:
            return
        if not dispatcher.budget.try_spend(dispatcher.loop.time()):
            dispatcher.routing.hedge(REFUSED_BY_BUDGET)
            return
        dispatcher.routing.hedge(reason)
        self._send(other)

    def _wait(self) -> None:
        dispatcher = self._dispatcher
        now = dispatcher.loop.time()
        if self._wait_until is None:
            self._wait_until = min(self._deadline, now + dispatcher.endpoint_wait)
        self._begin_waiting(now)
        self._waiter = dispatcher.fleet.wait(self._on_eligible)
        self._timer = dispatcher.loop.call_at(self._wait_until, self._waited)

    def _on_eligible(self) -> None:
        self._stop_waiting()
        self._send_or_wait()

    def _waited(self) -> None:
        self._stop_waiting()
        if self._deadline <= self._dispatcher.loop.time():
            self._finish(self._late())
        else:
            self._finish(self._last or faults.no_endpoints(self._dispatcher.endpoint_wait))

    def _expire_at_gate(self) -> None:
        self._finish(self._late())

    def _late(self) -> ApiError:
        """The deadline has passed here: the fleet is to blame, unless it has tried, or never had the time to."""
        return faults.deadline_exceeded(shed=not self._tried and self._arrived < self._deadline)

    def _begin_waiting(self, now: float) -> None:
        self._queued = True
        self._dispatcher.demand.queued.enter(now)

    def _stop_waiting(self) -> None:
        if self._queued:
            self._queued = False
            self._dispatcher.demand.queued.leave(self._dispatcher.loop.time())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None:
            self._dispatcher.fleet.forget(self._waiter)
            self._waiter = None

    def _stop_hedging(self) -> None:
        if self._hedge is not None:
            self._hedge.cancel()
            self._hedge = None

    def _on_fault(self, attempt: Attempt, response: Response, fault: Fault, now: float) -> None:
        status = response.status
        self._last = settle_fault(attempt, response, fault, self._dispatcher.fleet, now)
        if status not in _ELSEWHERE:
            self._finish(self._last)
        elif not self._attempts:
            self._retry(status, fault)

    def _retry(self, status: Status, fault: Fault) -> None:
        """Try one other pod. Only where a pod cannot work at all is it worth to wait for another one."""
        assert self._last is not None
        patient = status is Status.UNAVAILABLE
        other = self._dispatcher.fleet.pick(self._tried)
        if (other is None and not patient) or not self._may_retry(status, bounded=fault.code in BOUNDED_FAULTS):
            self._finish(self._last)
        elif other is None:
            self._wait()
        else:
            self._send(other)

    def _may_retry(self, status: Status, *, bounded: bool) -> bool:
        dispatcher = self._dispatcher
        now = dispatcher.loop.time()
        if self._done or self._streaming or len(self._tried) > 1 or self._deadline <= now:
            return False
        if bounded:
            dispatcher.budget.overdraw(now)
        elif not dispatcher.budget.try_spend(now):
            dispatcher.metrics.retry("refused_by_budget")
            return False
        dispatcher.metrics.retry(status.name.lower())
        return True

    def _finish_soon(self, outcome: ApiError) -> None:
        self._timer = self._dispatcher.loop.call_soon(self._finish, outcome)

    def _finish(self, outcome: Delivery | ApiError) -> None:
        if not self._done:
            if isinstance(outcome, Delivery):
                self._end()
            else:
                self._end(outcome.code)
                self._dispatcher.demand.refused(outcome)
            self._on_done(outcome)

    def _end(self, error: str = "") -> None:
        """Come to the end: nothing of the request is left anywhere."""
        self._done = True
        if self._span is not None:
            self._span.end(error, pods=",".join(self._tried))
        if self._timer is not None or self._waiter is not None:
            self._stop_waiting()
        if self._hedge is not None:
            self._stop_hedging()
        if self._attempts:
            attempts, self._attempts = self._attempts, []
            now = self._dispatcher.loop.time()
            for attempt in attempts:
                attempt.cancel(now)
        gate = self._dispatcher.gate
        if self._entered:
            gate.leave()
        else:
            gate.withdraw(self)


def settle_fault(attempt: Attempt, response: Response, fault: Fault, fleet: Fleet, now: float) -> ApiError:
    """End a try that has failed: book it with its pod; return the error that it is for a client."""
    pod, status = attempt.pod, response.status
    if fault.code not in _SAID_HERE:
        pod.hear(response.load, now)
    draining = fault.code == "draining"
    attempt.close(Ending.REFUSED if draining else _ENDINGS.get(status, Ending.FAILED), now)
    if status is Status.UNAVAILABLE and fault.code not in _TOLD_BY_THE_CHANNEL:
        pod.doubt()
    if status is Status.OVERLOADED:
        pod.ledger.refused(now + min(max(fault.retry_after_ms / 1000.0, SHORTEST_BREAK), LONGEST_BREAK))
    fleet.on_failure(pod)
    return _error(status, fault)


def _error(status: Status, fault: Fault) -> ApiError:
    if status is Status.DEADLINE_EXCEEDED:
        return faults.deadline_exceeded()
    if status is Status.INVALID:
        return faults.PodRefusalError(fault.code, fault.message, fault.parameter)
    if status is Status.UNAVAILABLE:
        return faults.pod_unavailable(fault.message)
    if status is Status.OVERLOADED:
        return faults.overloaded(fault.retry_after_ms)
    return faults.inference_failed(fault.message)
