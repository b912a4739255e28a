"""One sentence on its way: to a pod, to another one if that fails, and back by callback.

Callbacks rather than tasks: at thousands of sentences a second a task each would cost more than the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from copydesk.common.rpc import Channel, Fault, Response, Status
from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError
from copydesk.gateway.fleet import Fleet
from copydesk.gateway.metrics import Metrics
from copydesk.gateway.pod import Pod
from copydesk.routing import Ending, RetryBudget, Ticket

BOUNDED_FAULTS = frozenset({"connection_lost", "draining", "engine_unavailable"})
"""Failures that come at most once for each request in flight, so that retrying them cannot become a storm.

After the first of them the pod gets nothing more until it is ready again.
"""

_TOLD_BY_THE_CHANNEL = frozenset({"connection_lost", "draining"})

_NO_FAULT = Fault("unknown", "no reason given")

_ENDINGS = {
    Status.OK: Ending.ANSWERED,
    Status.OVERLOADED: Ending.REFUSED,
    Status.INVALID: Ending.REFUSED,
    Status.CANCELLED: Ending.ABANDONED,
    # The deadline is the client's: a short one says nothing about the pod, but the time it had taken counts.
    Status.DEADLINE_EXCEEDED: Ending.ABANDONED,
}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A pod's answer: the payload as it came, and the digest of the weights that made it."""

    payload: msgspec.Raw
    digest: str


class Dispatcher:
    """Sends sentences to the fleet; when no pod is ready, waits `endpoint_wait` seconds for one."""

    def __init__(self, fleet: Fleet, budget: RetryBudget, metrics: Metrics, *, endpoint_wait: float) -> None:
        self.fleet = fleet
        self.budget = budget
        self.metrics = metrics
        self.endpoint_wait = endpoint_wait
        self.loop = asyncio.get_running_loop()

    def submit(self, payload: bytes, deadline: float, on_done: Callable[[Delivery | ApiError], None]) -> Dispatch:
        """Start one sentence; `deadline` is in the loop's time.

        `on_done` is called exactly once and never from within this call; after `Dispatch.cancel` it is not called.
        """
        self.budget.request(self.loop.time())
        dispatch = Dispatch(self, payload, deadline, on_done)
        dispatch.start()
        return dispatch


class Dispatch:
    """One sentence underway. `_release` is the one place where its pod's count of requests in flight goes down."""

    __slots__ = (
        "_channel",
        "_deadline",
        "_dispatcher",
        "_done",
        "_last",
        "_on_done",
        "_payload",
        "_pod",
        "_request_id",
        "_ticket",
        "_timer",
        "_tried",
        "_wait_until",
        "_waiter",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        payload: bytes,
        deadline: float,
        on_done: Callable[[Delivery | ApiError], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._payload = payload
        self._deadline = deadline
        self._on_done = on_done
        self._done = False
        self._tried: tuple[str, ...] = ()
        self._last: ApiError | None = None
        self._pod: Pod | None = None
        self._channel: Channel | None = None
        self._ticket: Ticket | None = None
        self._request_id = 0
        self._waiter: object | None = None
        self._wait_until: float | None = None
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Make the first attempt."""
        if self._deadline <= self._dispatcher.loop.time():
            self._timer = self._dispatcher.loop.call_soon(self._finish, faults.deadline_exceeded())
            return
        self._send_or_wait()

    def cancel(self) -> None:
        """Give the sentence up; its pod is told."""
        if self._done:
            return
        self._done = True
        self._stop_waiting()
        if self._channel is not None:
            self._channel.cancel(self._request_id)
        self._release(Ending.ABANDONED)

    def _send_or_wait(self) -> None:
        pod = self._dispatcher.fleet.pick(self._tried)
        if pod is None:
            self._wait()
        else:
            self._send(pod)

    def _send(self, pod: Pod) -> None:
        now = self._dispatcher.loop.time()
        assert pod.channel is not None
        self._tried += (pod.id,)
        self._pod, self._channel = pod, pod.channel
        self._ticket = pod.ledger.start(now)
        remaining_ms = max(1, int((self._deadline - now) * 1000))
        self._request_id = pod.channel.send(self._payload, deadline_ms=remaining_ms, on_reply=self._on_reply)

    def _wait(self) -> None:
        dispatcher = self._dispatcher
        if self._wait_until is None:
            self._wait_until = min(self._deadline, dispatcher.loop.time() + dispatcher.endpoint_wait)
        self._waiter = dispatcher.fleet.wait(self._on_eligible)
        self._timer = dispatcher.loop.call_at(self._wait_until, self._waited)

    def _on_eligible(self) -> None:
        self._stop_waiting()
        self._send_or_wait()

    def _waited(self) -> None:
        self._stop_waiting()
        if self._deadline <= self._dispatcher.loop.time():
            self._finish(faults.deadline_exceeded())
        else:
            self._finish(self._last or faults.no_endpoints(self._dispatcher.endpoint_wait))

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is not None:
            self._dispatcher.fleet.forget(self._waiter)
            self._waiter = None

    def _on_reply(self, response: Response) -> None:
        pod, channel = self._pod, self._channel
        assert pod is not None
        assert channel is not None
        fault = response.fault or _NO_FAULT
        if fault.code not in ("connection_lost", "deadline_exceeded"):
            pod.hear(response.load)
        self._dispatcher.metrics.sentence(response.status)
        draining = fault.code == "draining"
        self._release(Ending.REFUSED if draining else _ENDINGS.get(response.status, Ending.FAILED))
        if response.status is Status.OK:
            self._finish(Delivery(response.payload, channel.peer.digest))
        elif response.status is Status.UNAVAILABLE:
            self._on_unavailable(pod, fault)
        elif response.status is Status.OVERLOADED:
            self._on_overloaded(fault)
        else:
            self._finish(_error(response.status, fault))

    def _on_unavailable(self, pod: Pod, fault: Fault) -> None:
        self._last = faults.pod_unavailable(fault.message)
        if fault.code not in _TOLD_BY_THE_CHANNEL:
            pod.doubt()
        if self._may_retry("unavailable", bounded=fault.code in BOUNDED_FAULTS):
            self._send_or_wait()
        else:
            self._finish(self._last)

    def _on_overloaded(self, fault: Fault) -> None:
        """Try one other pod; when there is none, or it is full too, the client is told at once."""
        other = self._dispatcher.fleet.pick(self._tried)
        if other is not None and self._may_retry("overloaded", bounded=False):
            self._send(other)
        else:
            self._finish(faults.overloaded(fault.retry_after_ms))

    def _may_retry(self, reason: str, *, bounded: bool) -> bool:
        now = self._dispatcher.loop.time()
        if len(self._tried) > 1 or self._deadline <= now:
            return False
        budget = self._dispatcher.budget
        if bounded:
            budget.overdraw(now)
        elif not budget.try_spend(now):
            self._dispatcher.metrics.retry("refused_by_budget")
            return False
        self._dispatcher.metrics.retry(reason)
        return True

    def _release(self, ending: Ending) -> None:
        ticket, pod = self._ticket, self._pod
        self._ticket = self._pod = self._channel = None
        if ticket is not None and pod is not None:
            ticket.finish(ending, self._dispatcher.loop.time())
            pod.request_ended()

    def _finish(self, outcome: Delivery | ApiError) -> None:
        if not self._done:
            self._done = True
            self._on_done(outcome)


def _error(status: Status, fault: Fault) -> ApiError:
    if status is Status.DEADLINE_EXCEEDED:
        return faults.deadline_exceeded()
    if status is Status.INVALID:
        return faults.bad_request("refused_by_model", f"The model refused a sentence: {fault.message}.")
    return faults.inference_failed(fault.message)
