"""What to do after a list or a watch has ended: go on, or list again, at once or after a pause. Pure.

A watch that ended is continued from where it was if it had said something, and whatever else happened, all is
listed again: that is cheap, and the one way to be sure. A pause comes before every new attempt that follows a
failure, or a watch that ended as soon as it began, so that a server that goes on failing is not run down.
"""

from __future__ import annotations

from dataclasses import dataclass

from copydesk.common.backoff import backoff_seconds
from copydesk.eds.kubernetes.reason import Reason, SilentError, reason_of
from copydesk.kube.trouble import ExpiredError, RefusedError, UnreachableError

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 15.0
"""Seconds; a server that comes back is heard this late at most."""

LONGEST_RETRY_AFTER = 60.0
"""Seconds that a server may ask for by Retry-After."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a list with the watch after it ended.

    `error` is None where the server closed the watch, as it does from time to time. `words` counts events and
    bookmarks; `sound` says whether the watch lasted as long as one does that is well.
    """

    error: Exception | None
    words: int = 0
    sound: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """What to do next: `relist` and why (None: continue the watch), and after how many seconds.

    `failed` says that the server, at present, cannot be heard. `attempt` counts what went wrong in a row.
    """

    relist: Reason | None
    pause: float
    failed: bool
    attempt: int


def next_course(ended: Ended, attempt: int, share: float) -> Course:
    """Decide; `attempt` is that of the last course, `share` a random number in [0, 1]."""
    attempt = 0 if ended.sound else attempt + 1
    pause = 0.0 if ended.sound else _pause(attempt, share)
    match ended.error:
        case None:
            return Course(None if ended.words else Reason.SILENT, pause, failed=False, attempt=attempt)
        case UnreachableError() if ended.words or ended.sound:
            return Course(None if ended.words else Reason.UNREACHABLE, pause, failed=False, attempt=attempt)
        case SilentError():
            return Course(Reason.SILENT, _pause(1, share), failed=False, attempt=0)
        case ExpiredError():
            return Course(Reason.EXPIRED, _pause(attempt, share), failed=False, attempt=attempt)
        case RefusedError(retry_after=wait) if wait > 0:
            asked = min(wait, LONGEST_RETRY_AFTER) * (1.0 + 0.1 * share)
            return Course(Reason.REFUSED, max(asked, _pause(attempt, share)), failed=True, attempt=attempt)
        case error:
            return Course(reason_of(error), _pause(attempt, share), failed=True, attempt=attempt)


def _pause(attempt: int, share: float) -> float:
    return backoff_seconds(max(0, attempt - 1), first=FIRST_PAUSE, cap=LONGEST_PAUSE, share=share)
