"""Offers of another protocol, taken out of the head of a request."""

from __future__ import annotations

import httptools
from hypothesis import given
from hypothesis import strategies as st

from copydesk.gateway.http.upgrades import head_without_offer

names = st.sampled_from([b"host", b"content-type", b"x-a", b"accept"])
values = st.binary(max_size=12).filter(lambda value: value.isalnum() or not value)
options = st.sampled_from([b"keep-alive", b"close", b"Upgrade", b"HTTP2-Settings", b"te"])


class Heard:
    """What a parser tells of a request."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


def parsed(data: bytes) -> Heard:
    heard = Heard()
    httptools.HttpRequestParser(heard).feed_data(data)
    return heard


@given(st.lists(st.tuples(names, values), max_size=5), st.lists(options, max_size=4))
def test_all_but_the_offer_stays(headers: list[tuple[bytes, bytes]], connection: list[bytes]) -> None:
    offer = [(b"upgrade", b"h2c"), (b"http2-settings", b"AAEAAEAAAAIAAAABAAMAAABk")]
    given_headers = [*headers, (b"connection", b", ".join([b"Upgrade", *connection])), *offer]
    head = head_without_offer(b"POST", b"/v2/check?a=b", "1.1", [*given_headers, (b"content-length", b"4")])
    heard = parsed(head + b"text")
    assert (heard.url, heard.body, heard.complete) == (b"/v2/check?a=b", b"text", True)
    kept = [option for option in connection if option not in (b"Upgrade", b"HTTP2-Settings")]
    assert heard.headers == [*headers, (b"connection", b", ".join(kept)), (b"content-length", b"4")]


def test_the_version_stays() -> None:
    assert head_without_offer(b"GET", b"/", "1.0", [(b"upgrade", b"h2c")]) == b"GET / HTTP/1.0\r\n\r\n"
