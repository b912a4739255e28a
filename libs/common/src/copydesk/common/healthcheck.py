"""`python -m copydesk.common.healthcheck PORT PATH`: whether this container's process says that it is well.

For the health checks of container engines, which run a command in the container: it asks the status port on
loopback and exits with 0 for an answer of 2xx, else with 1 and a line that says why. PORT is a number, or the name
of the environment variable that holds one, so that an image's check follows the port that was set. It costs one
start of Python every few seconds, so it imports next to nothing.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence

TIMEOUT_SECONDS = 3.0
ANSWER_BYTES = 65_536

WELL, UNWELL, MISUSED = 0, 1, 2


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Ask once; return the exit code."""
    if len(arguments) != 2 or not arguments[1].startswith("/"):
        print("usage: python -m copydesk.common.healthcheck PORT PATH", file=sys.stderr)
        return MISUSED
    name, path = arguments
    port = environ.get(name, name)
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        print(f"{name}: expected a port, or a variable that holds one, not {port!r}", file=sys.stderr)
        return MISUSED
    try:
        answer = ask(int(port), path)
    except OSError as error:
        print(f"127.0.0.1:{port}{path}: {error}")
        return UNWELL
    head, _, body = answer.partition(b"\r\n\r\n")
    print(f"{_first_line(head)} {_first_line(body)}".strip())
    return WELL if is_good(head) else UNWELL


def ask(port: int, path: str) -> bytes:
    """Return the whole answer to a GET of `path` on loopback; raises `OSError`, also when it takes too long."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    answer = b""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
        connection.sendall(request.encode("ascii"))
        while len(answer) < ANSWER_BYTES and (part := connection.recv(ANSWER_BYTES)):
            answer += part
    return answer


def is_good(head: bytes) -> bool:
    """Say whether an answer's head is that of a 2xx."""
    words = head.split(b" ", 2)
    return len(words) >= 2 and words[0].startswith(b"HTTP/1.") and len(words[1]) == 3 and words[1].startswith(b"2")


def _first_line(part: bytes) -> str:
    return part.partition(b"\n")[0].decode("utf-8", "replace").strip()[:200]


if __name__ == "__main__":
    import os

    sys.exit(main(sys.argv[1:], os.environ))
