"""A request that the lane hands back while it is at a pod, for Python to go on with as if it had sent it there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copydesk.gateway.pod import Pod


class Resumption:
    """Where a request is: under which id at which pod, since when, until when. Times are the event loop's.

    It is made again from its bytes, in one go, like any other; only that it keeps its `request_id`, pays no rate a
    second time, and is not sent anywhere: whoever would send it goes on from here, and sets `taken`.
    """

    __slots__ = ("deadline", "frame_id", "pod", "request_id", "sent_at", "taken")

    def __init__(self, pod: Pod, frame_id: int, sent_at: float, deadline: float, request_id: str) -> None:
        self.pod = pod
        self.frame_id = frame_id
        self.sent_at = sent_at
        self.deadline = deadline
        self.request_id = request_id
        self.taken = False


class Resuming:
    """What is being handed back at this moment, for all who have to know; None nearly always."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now: Resumption | None = None

    def take(self) -> Resumption | None:
        """Return it, once."""
        found = self.now
        if found is not None:
            self.now = None
            found.taken = True
        return found
