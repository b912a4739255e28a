"""The gate in front of a handler on the hot path."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Mapping

import pytest

from copydesk.gateway.access import Gatekeeper, admitting
from copydesk.gateway.faults import ApiError, bad_request
from copydesk.gateway.http.exchange import Exchange, Handler, Headers
from copydesk.gateway.keys import KeyLimits, KeyRing
from copydesk.gateway.rates import ClosedMeter, OnRuling, Rate


class Recorded:
    """An exchange that keeps what is said to it."""

    def __init__(self, client: str = "web") -> None:
        self.path = "/v1/correct"
        self.request_id = "req-1"
        self.headers: Mapping[bytes, bytes] = {}
        self.body = b"{}"
        self.arrived = 0.0
        self.client = client
        self.on_gone: Callable[[], None] | None = None
        self.said: list[object] = []

    def respond(
        self, body: bytes, *, status: int = 200, headers: Headers = (), kind: bytes = b"application/json"
    ) -> None:
        self.said.append((status, body, tuple(headers), kind))

    def fail(self, error: ApiError) -> None:
        self.said.append(error.code)

    def begin(self, *, kind: bytes, headers: Headers = ()) -> None:
        self.said.append(("begin", kind, tuple(headers)))

    def write(self, part: bytes) -> None:
        self.said.append(part)

    def end(self) -> None:
        self.said.append("end")

    def leave(self) -> None:
        """What the connection does when the client goes."""
        on_gone, self.on_gone = self.on_gone, None
        assert on_gone is not None
        on_gone()


class Later:
    """A meter that decides when told to."""

    def __init__(self) -> None:
        self.asked: list[OnRuling] = []

    def spend(self, client: str, rate: Rate, on_ruling: OnRuling) -> None:
        del client, rate
        self.asked.append(on_ruling)


class Kept:
    """A handler that keeps what it is given, to be answered later."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def __call__(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)


@pytest.fixture
def meter() -> Later:
    return Later()


def gate(meter: Later | ClosedMeter, **limits: float) -> Gatekeeper:
    gatekeeper = Gatekeeper(meter)
    stated = KeyLimits(**limits)  # type: ignore[arg-type]
    gatekeeper.use(KeyRing((("web", hashlib.sha256(b"k1").digest()),), {"web": stated}))
    return gatekeeper


def raising(error: Exception) -> Handler:
    def handle(exchange: Exchange) -> None:
        raise error

    return handle


def test_a_client_without_limits_is_handled_as_if_there_were_no_gate(meter: Later) -> None:
    handler, exchange = Kept(), Recorded()
    admitting(handler, gate(meter))(exchange)
    assert handler.exchanges == [exchange]


def test_a_request_counts_until_it_is_answered(meter: Later) -> None:
    handler, gatekeeper = Kept(), gate(meter, concurrency=1)
    guarded = admitting(handler, gatekeeper)
    first, second, third = Recorded(), Recorded(), Recorded()
    guarded(first)
    guarded(second)
    assert (second.said, gatekeeper.inside("web")) == (["too_many_concurrent"], 1)
    handler.exchanges[0].respond(b"{}", status=201, headers=((b"a", b"b"),), kind=b"text/plain")
    assert first.said == [(201, b"{}", ((b"a", b"b"),), b"text/plain")]
    guarded(third)
    handler.exchanges[1].fail(bad_request("empty_text", "no"))
    assert (third.said, gatekeeper.inside("web")) == (["empty_text"], 0)


def test_an_answer_in_parts_counts_until_its_end(meter: Later) -> None:
    handler, gatekeeper, exchange = Kept(), gate(meter, concurrency=1), Recorded()
    admitting(handler, gatekeeper)(exchange)
    inside = handler.exchanges[0]
    inside.begin(kind=b"text/event-stream")
    inside.write(b"a")
    assert gatekeeper.inside("web") == 1
    inside.end()
    assert gatekeeper.inside("web") == 0
    assert exchange.said == [("begin", b"text/event-stream", ()), b"a", "end"]


def test_what_the_client_sent_is_passed_on(meter: Later) -> None:
    handler, exchange = Kept(), Recorded()
    admitting(handler, gate(meter, concurrency=1))(exchange)
    for name in ("path", "request_id", "headers", "body", "arrived", "client"):
        assert getattr(handler.exchanges[0], name) == getattr(exchange, name)


def test_a_client_that_leaves_is_counted_out_and_its_handler_told(meter: Later) -> None:
    handler, gatekeeper, exchange = Kept(), gate(meter, concurrency=1), Recorded()
    told: list[str] = []
    admitting(handler, gatekeeper)(exchange)
    handler.exchanges[0].on_gone = lambda: told.append("gone")
    exchange.leave()
    assert (told, gatekeeper.inside("web")) == (["gone"], 0)


def test_a_client_that_leaves_at_the_gate_is_never_handled(meter: Later) -> None:
    handler, gatekeeper, exchange = Kept(), gate(meter, requests_per_second=1, concurrency=1), Recorded()
    admitting(handler, gatekeeper)(exchange)
    exchange.leave()
    meter.asked[0](None)
    assert (handler.exchanges, exchange.said, gatekeeper.inside("web")) == ([], [], 0)


def test_a_decision_that_comes_later_lets_the_request_go_on_or_refuses_it(meter: Later) -> None:
    handler, gatekeeper = Kept(), gate(meter, requests_per_second=1, concurrency=2)
    guarded = admitting(handler, gatekeeper)
    good, bad = Recorded(), Recorded()
    guarded(good)
    guarded(bad)
    assert handler.exchanges == []
    meter.asked[0](None)
    meter.asked[1](ApiError(429, "rate_limited", "no"))
    assert (len(handler.exchanges), good.said, bad.said) == (1, [], ["rate_limited"])
    assert gatekeeper.inside("web") == 1


@pytest.mark.parametrize(
    ("error", "code"), [(bad_request("blank_text", "no"), "blank_text"), (RuntimeError(), "internal_error")]
)
def test_a_handler_that_fails_after_the_gate_is_answered_for(meter: Later, error: Exception, code: str) -> None:
    gatekeeper, exchange = gate(meter, requests_per_second=1, concurrency=1), Recorded()
    admitting(raising(error), gatekeeper)(exchange)
    meter.asked[0](None)
    assert (exchange.said, gatekeeper.inside("web")) == ([code], 0)


def test_what_has_ended_is_gone_without_a_search_for_cycles(meter: Later) -> None:
    handler, gatekeeper = Kept(), gate(meter, requests_per_second=1, concurrency=2)
    guarded = admitting(handler, gatekeeper)
    while gc.collect():
        pass  # what earlier tests left may leave more behind when it goes
    answered, left, refused = Recorded(), Recorded(), Recorded()
    guarded(answered)
    guarded(left)
    guarded(refused)
    meter.asked[0](None)
    meter.asked[1](None)
    handler.exchanges[0].respond(b"{}")
    left.leave()
    for exchange in (answered, refused):
        exchange.on_gone = None  # as a connection does when it has answered
    handler.exchanges.clear()
    meter.asked.clear()
    del answered, left, refused, exchange
    assert gc.collect() == 0


def test_a_handler_that_fails_at_once_does_so_as_without_a_gate(meter: Later) -> None:
    gatekeeper, exchange = gate(meter, concurrency=1), Recorded()
    with pytest.raises(ApiError, match="blank_text"):
        admitting(raising(bad_request("blank_text", "no")), gatekeeper)(exchange)
    assert (exchange.said, gatekeeper.inside("web")) == ([], 0)
