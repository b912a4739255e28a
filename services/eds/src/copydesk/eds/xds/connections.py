"""How many connections the xDS server may have open, so that subscribers leave files for everything else.

Each connection is an open file of this process, and so are those to NATS, to the API server, and of whoever asks
for its health. Anybody who reaches the port can open connections, without a token and without saying a word.
"""

from __future__ import annotations

import resource

SPARE_CONNECTIONS = 64
"""Beside those with a stream: of subscribers that are just being refused, or just come back."""

OTHER_FILES = 256
"""What all else takes: NATS, the API server, 64 probes, 32 questions about health, gRPC's own."""

FEWEST = 16


def connections(max_streams: int) -> int:
    """Have the system allow the files for `max_streams` subscribers, and return how many connections fit in.

    Only the soft limit is raised, which any process may do up to its hard one. Where even that is too low there
    are fewer connections.
    """
    wanted = max_streams + SPARE_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _raised(soft, hard, wanted + OTHER_FILES)
    if allowed != soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(FEWEST, allowed - OTHER_FILES))


def _raised(soft: int, hard: int, wanted: int) -> int:
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
