"""Moments as people give them on a command line."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)(?:\s+ago)?")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


class MomentError(ValueError):
    """A text that names no moment; it carries the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"{text!r} is no moment: expected as 30m (ago), 14:30 (today) or 2026-11-30T14:30")


def read_moment(text: str, now: datetime) -> float:
    """Return the moment in Unix seconds; raise `MomentError`.

    What names no zone is meant as `now` is. If that names none either, it is local time, by the rules that hold at
    that moment: half a year ago clocks may have been set otherwise.
    """
    told = text.strip()
    ago = _AGO.fullmatch(told)
    try:
        if ago is not None:
            return now.timestamp() - timedelta(seconds=float(ago[1]) * _SECONDS[ago[2]]).total_seconds()
        if "-" not in told and ":" in told:
            told = f"{now:%Y-%m-%d}T{told}"
        found = datetime.fromisoformat(told)
        return (found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)).timestamp()
    except (ValueError, OverflowError):
        raise MomentError(text) from None
