"""What became of one request."""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.common.errors import CopydeskError


class RequestFailedError(CopydeskError):
    """A request that got no good answer: `kind` groups such failures, `message` tells more of this one."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        self.message = message
        super().__init__(f"{kind}: {message}")


@dataclass(frozen=True, slots=True)
class Sample:
    """One request: when it was due, sent and over, in seconds of one clock, and how it failed, if it did."""

    planned: float
    sent: float
    finished: float
    failure: RequestFailedError | None = None

    @property
    def latency(self) -> float:
        """Seconds from the moment the request was due, so that a late or waiting generator hides nothing.

        Measured from the sending, a service that stalls for a second would be charged with one slow request
        instead of all those that were due meanwhile ("coordinated omission").
        """
        return self.finished - self.planned

    @property
    def lateness(self) -> float:
        """Seconds by which the generator itself was late."""
        return self.sent - self.planned
