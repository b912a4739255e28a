"""One try of a request on one pod."""

from __future__ import annotations

from typing import Protocol, Self

import msgspec

from copydesk.common.rpc import Priority, Response
from copydesk.gateway.demand import Occupancy
from copydesk.gateway.link import Shareable
from copydesk.gateway.pod import Pod
from copydesk.routing import Ending, Ticket


class Sender(Protocol):
    """Whose try it is."""

    def on_reply(self, attempt: Attempt, response: Response) -> None:
        """The pod, or the lost connection to it, has ended the try."""

    def on_part(self, attempt: Attempt, part: msgspec.Raw) -> None:
        """A part of the answer has come."""

    def on_silence(self, attempt: Attempt) -> None:
        """The pod is taken for hung."""


class Attempt(Ticket):
    """A request in flight on a pod, from when it is made. `close` ends it, whatever the reason, and works once.

    Until then it is one of those `at_pods`.
    """

    __slots__ = ("_at_pods", "_channel", "_request_id", "_sender", "digest", "pod")

    def __init__(
        self,
        sender: Sender,
        pod: Pod,
        payload: bytes,
        *,
        at_pods: Occupancy,
        deadline: float,
        now: float,
        timed: bool,
        priority: Priority,
        parts: bool,
        trace: str = "",
    ) -> None:
        channel = pod.channel
        assert channel is not None
        super().__init__(pod.ledger, now, timed=timed)
        self._at_pods = at_pods
        at_pods.enter(now)
        self.pod = pod
        self.digest = channel.peer.digest
        self._sender = sender
        self._channel = channel
        pod.underway[self] = None
        remaining_ms = int((deadline - now) * 1000.0)
        self._request_id = channel.send(
            payload,
            deadline_ms=remaining_ms if remaining_ms > 1 else 1,
            on_reply=self._on_reply,
            on_chunk=self._on_part if parts else None,
            priority=priority,
            trace=trace,
        )

    @classmethod
    def resume(
        cls,
        sender: Sender,
        pod: Pod,
        request_id: int,
        *,
        at_pods: Occupancy,
        started_at: float,
        deadline: float,
        now: float,
        timed: bool,
    ) -> Self:
        """Return a try that somebody else has made, who sent it to `pod` on the connection that the pod has now.

        It is one of those `at_pods` from now on: until now it was theirs, who sent it at `started_at`. The pod's
        ledger has counted it, as of the same `timed`. Its connection must be one that can be shared.
        """
        channel = pod.channel
        assert channel is not None
        assert isinstance(channel, Shareable)
        attempt = cls.counted(pod.ledger, started_at, timed=timed)
        attempt._at_pods = at_pods
        at_pods.enter(now)
        attempt.pod = pod
        attempt.digest = channel.peer.digest
        attempt._sender = sender
        attempt._channel = channel
        attempt._request_id = request_id
        pod.underway[attempt] = None
        channel.adopt(request_id, deadline, attempt._on_reply)
        return attempt

    def close(self, ending: Ending, now: float) -> None:
        """End it: the pod has one request less in flight."""
        if not self.finish(ending, now):
            return
        self._at_pods.leave(now)
        pod = self.pod
        del pod.underway[self]
        if pod.retired:
            pod.request_ended()

    def cancel(self, now: float) -> None:
        """Give it up, and tell the pod."""
        if self.open:
            self._channel.cancel(self._request_id)
            self.close(Ending.ABANDONED, now)

    def on_silence(self) -> None:
        """The pod is taken for hung."""
        self._sender.on_silence(self)

    def _on_reply(self, response: Response) -> None:
        self._sender.on_reply(self, response)

    def _on_part(self, part: msgspec.Raw) -> None:
        self._sender.on_part(self, part)
