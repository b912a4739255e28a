"""How a node shows a peer that it knows the shared token, without telling it.

Whoever can publish on NATS can name any address as that of a peer, so the token itself is never sent. The proof of
one path is good for that path only, and whoever sees it also sees the sector that it opens.
"""

from __future__ import annotations

import hashlib
import hmac

HEADER = "authorization"
_SCHEME = "Copydesk-Peer"
PREFIX = "/v1/sectors/"


def proof(token: str, path: str) -> str:
    """The header's value for a request of `path`."""
    return f"{_SCHEME} {hmac.new(token.encode(), path.encode(), hashlib.sha256).hexdigest()}"


def proves(token: str, path: str, value: str) -> bool:
    """Whether `value` shows that the sender of a request knows the token."""
    return hmac.compare_digest(proof(token, path).encode(), value.encode())
