"""What may happen to a request that the compiled lane has underway, and what its client sees of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from types import ModuleType

import msgspec
import pytest
from opentelemetry.trace import NoOpTracer

from copydesk.common.rpc import Fault, Status
from copydesk.common.tasks import CorrectedSentence, Outcome
from copydesk.common.tracing import tracing
from copydesk.gateway.keys import KeyLimits, KeyRing
from copydesk.gateway.rates import LocalMeter
from tests.fixtures.openai_server import OpenAiServer
from tests.fixtures.text_pod import repeated
from tests.integration.gateway.lane.house import Answer, Client, House, ask_for, house, know
from tests.unit.gateway.conftest import eventually, snapshot

MINE, YOURS = "Authorization: Bearer mine", "Authorization: Bearer yours"


def ring(*names: str, **limits: KeyLimits) -> KeyRing:
    digests = tuple((name, hashlib.sha256(name.encode()).digest()) for name in names)
    return KeyRing(digests, limits)


async def sent(at: House, client: Client, *lines: str, prompt: str = "Once upon a time") -> None:
    """Send a request, and wait until the lane has it at a pod."""
    before = at.underway, len(at.held())
    client.send(ask_for(prompt, *lines))
    await eventually(lambda: (at.underway, len(at.held())) == (before[0] + 1, before[1] + 1))


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_plain_request_is_carried(native: ModuleType, path: str) -> None:
    async with house(native, "a", "b") as at:
        client = await at.learned(path=path)
        assert at.endings() == {"answered": 1, "client_gone": 0, "handed_back": 0}
        for number in range(20):
            answer = await client.ask(f"Number {number}.", path=path)
            assert answer.status == 200
            assert f"Number {number}.".encode() in answer.body
        assert at.endings()["answered"] == 21
        assert at.requests(200, path) == 22
        assert at.metric('sentences_total{status="ok"}') == 22
        assert at.metric(f'request_seconds_count{{route="{path}",outcome="answered"}}') == 22
        assert min(pod.ledger.requests for pod in at.gateway.fleet.pods.values()) > 0


async def test_another_connection_and_another_length_need_not_be_learned(native: ModuleType) -> None:
    async with house(native) as at:
        await at.learned("X-Request-Id: one")
        client = await at.client()
        answer = await client.ask("A text of another length.", "X-Request-Id: two")
        assert (answer.headers["x-request-id"], answer.text) == ("two", "A text of another length.")
        assert at.endings()["answered"] == 2


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.OVERLOADED, Status.INTERNAL])
async def test_what_its_pod_cannot_do_another_one_does(native: ModuleType, status: Status) -> None:
    async with house(native, "a", "b") as at:
        client = await at.learned()
        at.behave("hold")
        await sent(at, client)
        ((pod, call, _),) = at.held()
        at.behave("correct")
        pod.held.clear()
        call.fail(status, Fault("some_fault", "as the test wants it", retry_after_ms=5))
        answer = await client.answer()
        assert (answer.status, answer.text) == (200, "Once upon a time")
        assert at.gateway.metrics.retries == 1
        assert at.endings()["handed_back"] == 1
        assert at.metric(f'sentences_total{{status="{status.name.lower()}"}}') == 1
        assert at.requests(200) == 3


@pytest.mark.parametrize(
    "fault", [Fault("too_long", "too long"), Fault("invalid_parameter", "no", parameter="top_p"), Fault("x", "y")]
)
async def test_a_refusal_is_told_as_without_the_lane(native: ModuleType, fault: Fault) -> None:
    answers: list[Answer] = []
    for core in (native, None):
        async with house(core) as at:
            client = await at.learned()
            at.pods["a"].behaviour, at.pods["a"].fault = "refuse", fault
            answers.append(await client.ask("Once", "X-Request-Id: a"))
            assert at.requests(answers[-1].status) == 1
    (lane, python) = answers
    assert 400 <= lane.status < 500
    assert (lane.status, lane.body) == (python.status, python.body)


async def test_a_connection_that_is_lost_is_another_pods_work(native: ModuleType) -> None:
    async with house(native, "a", "b") as at:
        clients = [await at.learned() for _ in range(8)]
        at.behave("hold")
        for client in clients:
            await sent(at, client)
        lost = at.pods["a"] if at.pods["a"].held else at.pods["b"]
        (kept,) = [pod for pod in at.pods.values() if pod is not lost]
        kept.behaviour = "correct"
        await lost.stop()
        lost.held.clear()
        await eventually(lambda: len(at.gateway.fleet.eligible) == 1)
        at.release()
        assert [(await client.answer()).status for client in clients] == [200] * 8
        assert at.endings()["handed_back"] >= 1


async def test_the_deadline_ends_it_in_time_and_its_pod_is_told(native: ModuleType) -> None:
    async with house(native) as at:
        line = "X-Request-Deadline-Ms: 120"
        client = await at.learned(line)
        at.behave("hang")
        began = time.monotonic()
        answer = await client.ask("Once", line)
        took = time.monotonic() - began
        assert (answer.status, answer.code) == (504, "deadline_exceeded")
        assert took >= 0.118
        await eventually(lambda: at.pods["a"].gone == 1)
        assert (at.endings()["handed_back"], at.requests(504)) == (1, 1)
        at.behave("correct")
        assert (await client.ask("Once", line)).status == 200


async def test_many_deadlines_pass_each_in_its_turn(native: ModuleType) -> None:
    async with house(native) as at:
        lines = [f"X-Request-Deadline-Ms: {ms}" for ms in (400, 60, 200, 120)]
        clients = [await at.learned(line) for line in lines]
        at.behave("hang")
        order: list[str] = []

        async def late(client: Client, line: str) -> None:
            assert (await client.ask("Once", line)).status == 504
            order.append(line)

        await asyncio.gather(*(late(*pair) for pair in zip(clients, lines, strict=True)))
        assert order == [lines[1], lines[3], lines[2], lines[0]]
        assert at.pods["a"].gone == 4


async def test_a_client_that_leaves_is_counted_and_its_pod_told(native: ModuleType) -> None:
    async with house(native) as at:
        client = await at.learned()
        at.behave("hold")
        await sent(at, client)
        client.leave()
        await eventually(lambda: at.pods["a"].gone == 1)
        assert at.endings()["client_gone"] == 1
        assert at.requests(499) == 1
        await at.idle()
        other = await at.client()
        at.behave("correct")
        assert (await other.ask("Once")).status == 200


async def test_a_request_behind_it_is_answered_behind_it(native: ModuleType) -> None:
    async with house(native) as at:
        client = await at.learned()
        at.behave("hold")
        await sent(at, client, prompt="First")
        client.send(ask_for("Second") + ask_for("Third"))
        await eventually(lambda: at.underway == 0)
        at.behave("correct")
        await asyncio.sleep(0.02)
        assert len(at.pods["a"].tasks) == 1
        at.release()
        assert [(await client.answer()).text for _ in range(3)] == ["First", "Second", "Third"]
        assert at.endings()["handed_back"] == 1
        assert (await client.ask("Fourth")).text == "Fourth"
        assert at.endings()["answered"] == 2


async def test_half_a_request_behind_it_waits_for_its_other_half(native: ModuleType) -> None:
    async with house(native) as at:
        client = await at.learned()
        for cut in (1, 30, 100, -3):
            at.behave("hold")
            await sent(at, client, prompt="First")
            whole = ask_for("Second")
            client.send(whole[:cut])
            await eventually(lambda: at.underway == 0)
            at.release()
            assert (await client.answer()).text == "First"
            at.behave("correct")
            client.send(whole[cut:])
            assert (await client.answer()).text == "Second"


async def test_nonsense_behind_it_is_refused_behind_it(native: ModuleType) -> None:
    async with house(native) as at:
        client = await at.learned()
        at.behave("hold")
        await sent(at, client)
        client.send(b"what is this\r\n\r\n")
        await eventually(lambda: at.underway == 0)
        at.release()
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 400
        assert await client.closed()


@pytest.mark.parametrize("body_more", [0, 1])
async def test_what_would_smuggle_is_refused_however_often(native: ModuleType, body_more: int) -> None:
    async with house(native) as at:
        for _ in range(3):
            client = await at.learned()
            assert (await client.ask("Once" + " " * body_more)).status == 200
            top, body = ask_for("Once").split(b"\r\n\r\n")
            client.send(top + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + body + b" " * body_more)
            assert (await client.answer()).status == 400
            assert await client.closed()


async def test_a_pod_that_hangs_is_found_out_and_another_one_asked(native: ModuleType) -> None:
    async with house(native, "a", "b", eject_silence_ms=100, share_sentences=False) as at:
        client = await at.learned()
        at.behave("hold")
        await sent(at, client)
        ((hung, _, _),) = at.held()
        (well,) = [pod for pod in at.pods.values() if pod is not hung]
        well.behaviour, hung.behaviour = "correct", "hang"
        readers = [asyncio.create_task(correct(at, number)) for number in range(4)]
        answer = await client.answer()
        assert (answer.status, answer.text) == (200, "Once upon a time")
        assert at.gateway.dispatcher.routing.hedges >= 1
        assert all(status == 200 for status in await asyncio.gather(*readers))
        hung.held.clear()


async def correct(at: House, number: int) -> int:
    """Have sentences corrected, so that there is something to compare a pod's silence with."""
    client = await at.client()
    for turn in range(20):
        answer = await client.ask(f"She go out {number} {turn}.", path="/v1/correct")
        if answer.status != 200:
            return answer.status
        await asyncio.sleep(0.01)
    return 200


async def test_a_pod_that_leaves_answers_it_first(native: ModuleType) -> None:
    async with house(native, "a", "b") as at:
        client = await at.learned()
        at.behave("hold")
        await sent(at, client)
        ((leaving, _, _),) = at.held()
        at.gateway.fleet.apply(snapshot(*(pod.endpoint() for pod in at.pods.values() if pod is not leaving)))
        await eventually(lambda: at.underway == 0)
        await asyncio.sleep(0.02)
        assert leaving.in_flight == 1
        at.release()
        assert (await client.answer()).text == "Once upon a time"
        await eventually(lambda: not at.gateway.fleet._retiring)
        at.behave("correct")
        for _ in range(5):
            assert (await client.ask("Once")).status == 200
        assert len(leaving.tasks) == 1


async def test_a_pod_that_drains_answers_it_and_gets_nothing_new(native: ModuleType) -> None:
    async with house(native, "a", "b") as at:
        client = await at.learned()
        at.behave("hold")
        await sent(at, client)
        ((draining, _, _),) = at.held()
        draining.behaviour = "correct"
        drained = asyncio.create_task(draining.drain())
        await eventually(lambda: len(at.gateway.fleet.eligible) == 1)
        others = [await at.client() for _ in range(3)]
        at.behave("correct")
        for other in others:
            assert (await other.ask("Twice")).status == 200
        assert len(draining.tasks) == 1
        at.release()
        assert (await client.answer()).text == "Once upon a time"
        assert await drained


async def test_when_the_gateway_is_to_stop_the_answer_says_so(native: ModuleType) -> None:
    async with house(native) as at:
        client = await at.learned()
        at.behave("hold")
        await sent(at, client)
        assert at.gateway.lane is not None
        at.server.stop()
        assert (at.underway, at.gateway.lane.active) == (0, False)
        await asyncio.sleep(0.15)
        assert not at.gateway.lane.active
        at.release()
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await client.closed()
        await at.idle()


async def test_a_key_that_was_revoked_is_refused_from_then_on(native: ModuleType) -> None:
    async with house(native, keys=ring("mine", "yours")) as at:
        mine, yours = await at.learned(MINE), await at.learned(YOURS)
        at.behave("hold")
        await sent(at, mine, MINE)
        at.gateway.gatekeeper.use(ring("yours"))
        at.release()
        assert (await mine.answer()).status == 200
        at.behave("correct")
        before = at.endings()["answered"]
        assert (await mine.ask("Once", MINE)).status == 401
        assert (await yours.ask("Once", YOURS)).status == 200
        assert (await mine.ask("Once", MINE)).status == 401
        assert at.endings()["answered"] == before
        assert (await yours.ask("Once", YOURS)).status == 200
        assert at.endings()["answered"] == before + 1
        assert at.requests(401) == 2


async def test_one_of_a_revoked_key_that_is_handed_back_is_refused_once(native: ModuleType) -> None:
    async with house(native, keys=ring("mine")) as at:
        client = await at.learned(MINE)
        at.behave("hold")
        await sent(at, client, MINE)
        at.gateway.gatekeeper.use(ring("yours"))
        assert at.gateway.lane is not None
        at.gateway.lane._lane.recall()
        assert (await client.answer()).status == 401
        await eventually(lambda: at.pods["a"].gone == 1)
        at.pods["a"].held.clear()
        assert (at.requests(401), at.requests(499), at.requests(200)) == (1, 0, 2)


async def mixed(at: House, number: int, *lines: str) -> list[Client]:
    """Clients of whom every other one asks for a stream, which the lane leaves to Python."""
    clients = [await at.client() for _ in range(number)]
    for index, client in enumerate(clients):
        client.send(ask_for("Once upon", *lines, stream=bool(index % 2)))
        await asyncio.sleep(0.005)
    return clients


async def test_the_limit_of_concurrency_is_exact_whoever_carries_a_request(native: ModuleType) -> None:
    async with house(native, keys=ring("mine", mine=KeyLimits(concurrency=5))) as at:
        await at.learned(MINE)
        at.behave("hold")
        for handed_back in (False, True, False):
            clients = await mixed(at, 9, MINE)
            await at.holding(5)
            assert at.underway == 3
            assert [(await client.answer()).status for client in clients[5:]] == [429] * 4
            if handed_back and at.gateway.lane is not None:
                at.gateway.lane._lane.recall()
            at.release()
            assert [(await client.answer()).status for client in clients[:5]] == [200] * 5
            await at.idle()


async def test_the_limit_of_a_rate_is_exact_whoever_carries_a_request(native: ModuleType) -> None:
    limits = KeyLimits(requests_per_second=0.01, burst=9)
    async with house(native, keys=ring("mine", mine=limits)) as at:
        await at.learned(MINE)
        clients = await mixed(at, 14, MINE)
        statuses = [(await client.answer()).status for client in clients]
        assert statuses == [200] * 7 + [429] * 7
        assert at.endings()["answered"] == 5


async def test_python_and_the_lane_read_one_clock_for_rates(native: ModuleType) -> None:
    """By the event loop's, which uvloop stops within a turn, each refusal would give some of an interval away."""
    limits = KeyLimits(requests_per_second=0.01, burst=100)
    async with house(native, keys=ring("mine", mine=limits)) as at:
        client = await at.learned(MINE)
        meter = at.gateway.gatekeeper.meter
        assert isinstance(meter, LocalMeter)
        cell, interval = meter.due_cell("mine"), 100_000_000
        asyncio.get_running_loop().time()
        began = time.monotonic()
        while time.monotonic() < began + 0.005:
            pass
        assert 5_000 <= meter._now() - int(began * 1e6) < 1_000_000
        cell.value = 0
        before = meter._now()
        assert (await client.ask("Once", MINE)).status == 200
        assert at.endings()["answered"] == 2
        assert before <= cell.value - interval <= meter._now()


async def test_when_the_pods_are_full_requests_wait_their_turn_and_the_rest_is_refused(native: ModuleType) -> None:
    async with house(native, queue=4, overcommit=1.0) as at:
        pod = at.pods["a"]
        pod.capacity = 3
        await at.learned()
        await eventually(lambda: at.gateway.fleet.allowance == 3)
        at.behave("hold")
        clients = [await at.client() for _ in range(12)]
        for client in clients:
            client.send(ask_for("Once upon a time"))
            await asyncio.sleep(0.002)
        await eventually(lambda: at.requests(429) == 5)
        assert (at.underway, len(at.held()), len(at.gateway.dispatcher.gate.queue)) == (3, 3, 4)
        at.release(at.held()[0])
        await eventually(lambda: len(at.held()) == 3 and len(at.gateway.dispatcher.gate.queue) == 3)
        while at.held() or at.gateway.dispatcher.gate.queue:
            at.release()
            await asyncio.sleep(0.005)
        statuses = [(await client.answer()).status for client in clients]
        assert sorted(statuses) == [200] * 7 + [429] * 5
        assert pod.at_once == 3


async def test_with_traces_the_lane_is_off(native: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house(native) as at:
        client = await at.learned()
        assert at.gateway.lane is not None
        monkeypatch.setattr(tracing, "_tracer", NoOpTracer())
        await eventually(lambda: at.gateway.lane is not None and not at.gateway.lane.active)
        before = at.endings()
        assert (await client.ask("Once")).status == 200
        assert at.endings() == before
        assert at.metric("lane_active") == 0
        monkeypatch.undo()
        await eventually(lambda: at.gateway.lane is not None and at.gateway.lane.active)
        assert (await client.ask("Once")).status == 200
        assert at.endings()["answered"] == before["answered"] + 1


async def test_with_a_pod_that_speaks_http_the_lane_is_off_and_both_get_work(native: ModuleType) -> None:
    async with house(native, slow_start_ms=0) as at:
        client = await at.learned()
        server = await OpenAiServer(model="gec-en").start()
        try:
            at.gateway.fleet.apply(snapshot(at.pods["a"].endpoint(), server.endpoint(capacity=8)))
            await eventually(lambda: len(at.gateway.fleet.eligible) == 2)
            before = at.endings()
            for _ in range(30):
                assert (await client.ask("Once upon")).text == "Once upon"
            assert at.endings() == before
            assert min(len(server.received), len(at.pods["a"].tasks)) > 0
            await know(at.gateway, at.pods["a"])
            assert (await client.ask("Once")).status == 200
            assert at.endings()["answered"] == before["answered"] + 1
        finally:
            await eventually(lambda: not at.gateway.fleet._retiring)
            await server.stop()


ODD = {
    "invalid UTF-8": b"\x96\xaegenerated_text\xa2\xff\xfe\xa4stop\xc0\x01\x01",
    "another type": msgspec.msgpack.encode(CorrectedSentence("a", Outcome.CORRECTED, 1, 1)),
    "nothing": b"\xc0",
    "too few fields": msgspec.msgpack.encode(["generated_text", "a", "stop"]),
    "no text": msgspec.msgpack.encode(["generated_text", 5, "stop", None, 1, 1]),
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_answer_is_told_as_without_the_lane(native: ModuleType, odd: str) -> None:
    answers: list[Answer] = []
    for core in (native, None):
        async with house(core) as at:
            client = await at.learned()
            at.behave("hold")
            client.send(ask_for("Once", "X-Request-Id: a"))
            ((pod, call, _),) = await at.holding()
            pod.held.clear()
            call.reply(ODD[odd])
            answers.append(await client.answer())
            assert at.requests(answers[-1].status) == 1 + 2 * (answers[-1].status == 200)
            at.behave("correct")
            assert (await client.ask("Once")).status == 200
    (lane, python) = answers
    assert lane.status == 502
    assert (lane.status, lane.body) == (python.status, python.body)


async def test_a_sentence_that_is_underway_is_waited_for_whoever_carries_it(native: ModuleType) -> None:
    async with house(native) as at:
        clients = [await at.learned(path="/v1/correct"), await at.client(), await at.client()]
        pod, before = at.pods["a"], at.endings()
        pod.behaviour, received = "slow", len(pod.received)
        for number, client in enumerate(clients):
            client.send(ask_for("She go home.", path="/v1/correct"))
            await eventually(lambda count=number: at.underway == (count == 0))  # type: ignore[misc]
            await asyncio.sleep(0.01)
        answers = [await client.answer() for client in clients]
        assert [json.loads(answer.body)["corrected"] for answer in answers] == ["She goes home."] * 3
        assert len(pod.received) == received + 1
        assert at.metric("shared_sentences_total") == 2
        assert at.endings()["handed_back"] == before["handed_back"] + 1
        assert at.requests(200, "/v1/correct") == 5


async def test_a_body_that_is_too_large_is_refused_by_the_gateways_own_limit(native: ModuleType) -> None:
    async with house(native, max_body_bytes=1024) as at:
        client = await at.learned()
        answer = await client.ask("a" * 2_000)
        assert (answer.status, answer.code) == (413, "body_too_large")
        assert (await client.ask("a" * 900)).status == 200


async def test_a_thousand_connections_at_once(native: ModuleType) -> None:
    async with house(native, "a", "b", "c", queue=2_000, overcommit=1_000.0) as at:
        await at.learned()
        at.behave("hold")
        clients = await asyncio.gather(*(at.client() for _ in range(1_000)))
        for number, client in enumerate(clients):
            client.send(ask_for(f"Text {number}."))
        await at.holding(1_000)
        assert at.underway == 1_000
        for client in clients[:100]:
            client.leave()
        await eventually(lambda: at.underway == 900)
        at.release()
        for number, client in enumerate(clients[100:], start=100):
            assert (await client.answer()).text == f"Text {number}."
        assert at.endings() == {"answered": 901, "client_gone": 100, "handed_back": 0}
        assert min(len(pod.tasks) for pod in at.pods.values()) > 250


async def test_what_a_client_sends_on_while_its_answer_is_read_slowly_keeps_its_order(native: ModuleType) -> None:
    """An answer of some megabytes stops up the connection, and what comes behind it has to wait."""
    async with house(native, max_body_bytes=256 * 1024) as at:
        client = await at.learned()
        at.behave("hold")
        client.writer.transport.set_write_buffer_limits(0)
        await sent(at, client)
        ((pod, call, task),) = at.held()
        pod.held.clear()
        answer = repeated(task)
        pod.finish(call, msgspec.structs.replace(answer, text="word " * 400_000))
        at.behave("correct")
        await eventually(lambda: at.underway == 0)
        client.send(ask_for("Second"))
        await asyncio.sleep(0.05)
        client.send(ask_for("Third"))
        await asyncio.sleep(0.05)
        assert len((await client.answer()).text) == 2_000_000
        assert [(await client.answer()).text for _ in range(2)] == ["Second", "Third"]
