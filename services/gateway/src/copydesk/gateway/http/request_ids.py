"""The name of a request in logs and answers: the client's own if it is fit for that, else one made up."""

from __future__ import annotations

import re
import secrets
from itertools import count

_FIT = re.compile(rb"[\x21-\x7e]{1,128}")
_PROCESS = secrets.token_hex(6)
_numbers = count(1)


def request_id(said: bytes | None) -> str:
    """Return `said`, the header `X-Request-Id`, or a new id: of this process, and counted.

    A count rather than randomness for each: that would cost a system call.
    """
    if said is not None and _FIT.fullmatch(said) is not None:
        return said.decode("ascii")
    return f"req-{_PROCESS}{next(_numbers):012x}"
