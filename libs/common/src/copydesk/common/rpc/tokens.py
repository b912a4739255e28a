"""Tokens of RPC: several, one a line, while a fleet changes over from one to the next.

A server lets in whoever shows one of its tokens, and a client shows its first. So a fleet changes over without a
moment in which two parts disagree: servers first take both, then clients show the new one, then the old one goes.
"""

from __future__ import annotations

import hmac


def shown_token(tokens: str) -> str:
    """Return the token that a client shows; it is empty if there is none."""
    return _lines(tokens)[0]


def is_accepted(tokens: str, token: str) -> bool:
    """Say whether a server lets in who shows `token`, in a time that tells nothing of how much of it is right."""
    found = [hmac.compare_digest(each.encode(), token.encode()) for each in _lines(tokens)]
    return any(found)


def _lines(tokens: str) -> list[str]:
    lines = (line.removesuffix("\r") for line in tokens.split("\n"))
    return [line for line in lines if line] or [""]
