import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from prometheus_client import REGISTRY

from copydesk.common.rpc import Fault, InboundCall, Load, Priority, Response, Status
from copydesk.common.rpc.frames import Chunk, Request
from copydesk.inference.engine import (
    Finish,
    GeneratedTokens,
    GenerateTokens,
    OnDone,
    OnTokens,
    PromptTooLongError,
    QueueFullError,
)
from copydesk.inference.pod.engine_calls import EngineCalls, retry_after_ms
from copydesk.inference.pod.metrics import EngineMetrics
from copydesk.inference.pod.step_loop import StepLoop

LIMIT = 4
ANSWER = GeneratedTokens([7], Finish.STOP, prompt_tokens=3, completion_tokens=2, passes=4, drafted=6, accepted=1)


class HeldEngine:
    """Takes up to four requests and ends each when told to."""

    context, capacity, queue = 64, 2, 2

    def __init__(self) -> None:
        self.deadlines: dict[int, float] = {}
        self.cancelled: set[int] = set()
        self._held: dict[int, OnDone] = {}
        self._ending: list[tuple[int, Finish]] = []

    def submit(
        self,
        request: GenerateTokens,
        *,
        deadline: float,
        priority: Priority,
        on_done: OnDone,
        on_tokens: OnTokens | None = None,
    ) -> int:
        if len(request.prompt) > self.context:
            raise PromptTooLongError(len(request.prompt), self.context)
        if len(self._held) >= LIMIT:
            raise QueueFullError(LIMIT)
        request_id = len(self.deadlines) + 1
        self.deadlines[request_id] = deadline
        self._held[request_id] = on_done
        return request_id

    def cancel(self, request_id: int) -> None:
        self.cancelled.add(request_id)
        self.end(request_id, Finish.CANCELLED)

    def end(self, request_id: int, finish: Finish) -> None:
        self._ending.append((request_id, finish))

    def step(self, now: float) -> bool:
        while self._ending:
            request_id, finish = self._ending.pop(0)
            self._held.pop(request_id)(msgspec.structs.replace(ANSWER, finish=finish))
        return False

    def load(self) -> Load:
        return Load(running=0, queued=len(self._held), capacity=self.capacity)

    def outlook(self, priority: Priority) -> float:
        return 0.0


class Recorder:
    """The connection that calls came on: it keeps how they ended."""

    def __init__(self) -> None:
        self.responses: dict[int, Response] = {}
        self.answered = asyncio.Event()

    def finish(self, response: Response) -> None:
        self.responses[response.id] = response
        self.answered.set()

    def stream(self, chunk: Chunk) -> None:
        raise AssertionError("nothing is streamed here")

    def load(self) -> Load:
        return Load()

    def now(self) -> float:
        return asyncio.get_running_loop().time()


class Bench:
    """One engine, its calls, and who made them."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self.engine = HeldEngine()
        self.owner = Recorder()
        self.steps = StepLoop(
            self.engine,
            loop=asyncio.get_running_loop(),
            on_crash=lambda error: pytest.fail(str(error)),
            on_step=lambda _: None,
        )
        self.calls = EngineCalls(self.engine, self.steps, metrics)

    def call(self, request_id: int, payload: bytes, deadline_ms: int = 5000) -> InboundCall:
        request = Request(request_id, deadline_ms, Priority.INTERACTIVE, msgspec.Raw(payload))
        call = InboundCall(self.owner, request, self.owner.now())
        self.calls.handle(call)
        return call

    async def end(self, request_id: int, finish: Finish) -> Response:
        self.owner.answered.clear()
        self.engine.end(request_id, finish)
        self.steps.wake()
        await asyncio.wait_for(self.owner.answered.wait(), 5.0)
        return self.owner.responses[request_id]

    def fault(self, request_id: int) -> tuple[Status, Fault]:
        response = self.owner.responses[request_id]
        assert response.fault is not None
        return response.status, response.fault


@pytest.fixture(scope="module")
def metrics() -> EngineMetrics:
    return EngineMetrics()


@pytest.fixture
async def bench(metrics: EngineMetrics) -> AsyncIterator[Bench]:
    bench = Bench(metrics)
    bench.steps.start()
    yield bench
    assert bench.steps.stop(5.0)


COUNTED = ("prompt_tokens", "completion_tokens", "passes", "drafted_tokens", "accepted_tokens")


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(f"copydesk_inference_{name}_total") or 0.0


def payload(prompt: int = 3) -> bytes:
    return msgspec.msgpack.encode(GenerateTokens(prompt=[1] * prompt, max_tokens=4, stop_ids=[2]))


async def test_an_answer_of_the_engine_is_the_reply_to_the_call(bench: Bench) -> None:
    before = [counted(name) for name in COUNTED]
    bench.call(1, payload())
    response = await bench.end(1, Finish.STOP)
    assert response.status is Status.OK
    assert msgspec.msgpack.decode(response.payload, type=GeneratedTokens) == ANSWER
    grown = [counted(name) - earlier for name, earlier in zip(COUNTED, before, strict=True)]
    assert grown == [3, 2, 4, 6, 1]


async def test_the_deadline_of_the_call_is_the_engines(bench: Bench) -> None:
    call = bench.call(1, payload())
    assert bench.engine.deadlines == {1: call.deadline}


async def test_a_call_that_has_expired_never_reaches_the_engine(bench: Bench) -> None:
    bench.call(1, payload(), deadline_ms=0)
    assert bench.fault(1)[0] is Status.DEADLINE_EXCEEDED
    assert bench.engine.deadlines == {}


async def test_a_request_that_expires_in_the_engine_says_so(bench: Bench) -> None:
    bench.call(1, payload())
    response = await bench.end(1, Finish.DEADLINE)
    assert response.status is Status.DEADLINE_EXCEEDED


async def test_a_request_that_the_engine_cannot_compute_is_nobodys_fault_outside(bench: Bench) -> None:
    bench.call(1, payload())
    response = await bench.end(1, Finish.FAILED)
    assert response.status is Status.INTERNAL
    assert bench.fault(1)[1].code == "engine_failed"


async def test_a_cancelled_call_is_cancelled_in_the_engine_and_gets_no_answer(bench: Bench) -> None:
    call = bench.call(1, payload())
    call.cancelled = True
    assert call.on_cancel is not None
    call.on_cancel()
    assert bench.engine.cancelled == {1}
    bench.call(2, payload())
    await bench.end(2, Finish.STOP)
    assert set(bench.owner.responses) == {2}


async def test_a_full_queue_is_back_pressure_with_a_time_to_come_back(bench: Bench) -> None:
    for request_id in range(1, LIMIT + 1):
        bench.call(request_id, payload())
    bench.call(LIMIT + 1, payload())
    status, fault = bench.fault(LIMIT + 1)
    assert (status, fault.code) == (Status.OVERLOADED, "queue_full")
    assert fault.retry_after_ms > 0


async def test_a_request_that_the_engine_does_not_take_is_invalid(bench: Bench) -> None:
    bench.call(1, payload(prompt=65))
    status, fault = bench.fault(1)
    assert (status, fault.code) == (Status.INVALID, "prompt_too_long")


@pytest.mark.parametrize("body", [b"\xc0", msgspec.msgpack.encode(["generate", "no list", 4, [2]])])
async def test_a_payload_that_is_no_request_is_invalid(bench: Bench, body: bytes) -> None:
    bench.call(1, body)
    status, fault = bench.fault(1)
    assert (status, fault.code) == (Status.INVALID, "bad_payload")


def test_the_time_to_come_back_grows_with_the_queue_within_bounds() -> None:
    assert retry_after_ms(Load(queued=0, capacity=8), 0.5) == 20
    assert retry_after_ms(Load(queued=16, capacity=8), 0.5) == 500
    assert retry_after_ms(Load(queued=160, capacity=8), 0.5) == 5000
    assert retry_after_ms(Load(queued=10**6, capacity=8), 0.5) == 10_000
