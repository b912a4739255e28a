"""Offers of another protocol, which are never taken here, so that the request behind one is served as it is.

Every Java client that does not say otherwise offers HTTP/2 (`Upgrade: h2c`) with each request, its body behind it.
httptools takes what follows such a head for the other protocol, so that the body would be lost, or taken for the
next request (httptools issue 124, uvicorn issue 2722). RFC 9110, 7.8: a server may ignore the offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Header = tuple[bytes, bytes]

_OFFERS = (b"upgrade", b"http2-settings")


def head_without_offer(method: bytes, url: bytes, version: str, headers: Iterable[Header]) -> bytes:
    """Return the head of a request, its headers by lower-case name, without the offer: to be parsed again."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode("ascii"))]
    lines += [b"%b: %b" % header for header in _kept(headers)]
    return b"\r\n".join([*lines, b"", b""])


def _kept(headers: Iterable[Header]) -> Iterator[Header]:
    for name, value in headers:
        if name == b"connection":
            options = [option.strip() for option in value.split(b",")]
            yield name, b", ".join(option for option in options if option.lower() not in _OFFERS)
        elif name not in _OFFERS:
            yield name, value
