"""What a worker makes of its engine's answers, without an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from copydesk.common.rpc import Fault, InboundCall, Load, Priority, Response, Status
from copydesk.common.rpc.frames import Chunk, Request
from copydesk.common.tasks import CorrectSentence, GeneratedText, GenerateText, Stopped, TextPrompt
from copydesk.inference.completion import Completer
from copydesk.inference.correction import Corrector, TextTokenizer, read_model_files
from copydesk.inference.engine import Finish, GeneratedTokens, GenerateTokens
from copydesk.inference.pod.completions import Completions
from copydesk.inference.pod.corrections import Corrections
from copydesk.inference.pod.engine_link import ENGINE_UNAVAILABLE
from copydesk.inference.pod.engines import Engines, Refusal
from copydesk.inference.pod.metrics import WorkerMetrics
from copydesk.inference.pod.tasks import Tasks
from tests.fixtures.tiny_model import write_tiny_model

encode = msgspec.msgpack.encode


class Gateway:
    """The connection that a call came on."""

    def __init__(self) -> None:
        self.responses: list[Response] = []
        self.chunks: list[Any] = []

    def finish(self, response: Response) -> None:
        self.responses.append(response)

    def stream(self, chunk: Chunk) -> None:
        self.chunks.append(msgspec.msgpack.decode(chunk.payload))

    def load(self) -> Load:
        return Load()

    def now(self) -> float:
        return 0.0


class Link:
    """The engine, as far as a worker sees it."""

    def __init__(self) -> None:
        self.up = True
        self.cancelled = 0
        self.asked: list[GenerateTokens] = []
        self.on_reply: Callable[[Response], None]
        self.on_chunk: Callable[[msgspec.Raw], None]

    def send(
        self, payload: bytes, *, on_reply: Any, on_chunk: Any = None, **_: object
    ) -> Callable[[], None] | Refusal:
        self.asked.append(msgspec.msgpack.decode(payload, type=GenerateTokens))
        self.on_reply, self.on_chunk = on_reply, on_chunk
        return self._cancel if self.up else Refusal(Status.UNAVAILABLE, ENGINE_UNAVAILABLE)

    def answer(self, result: GeneratedTokens) -> None:
        self.on_reply(Response(1, Status.OK, Load(), msgspec.Raw(encode(result))))

    def made(self, tokens: list[int]) -> None:
        self.on_chunk(msgspec.Raw(encode(tokens)))

    def _cancel(self) -> None:
        self.cancelled += 1


class Counts:
    """The metrics, remembered."""

    def __init__(self) -> None:
        self.ends: list[Status] = []

    def ended(self, status: Status, seconds: float) -> None:
        assert seconds >= 0
        self.ends.append(status)


class Bench:
    def __init__(self, model: Path) -> None:
        self.gateway, self.link, self.counts = Gateway(), Link(), Counts()
        self.tokenizer = TextTokenizer(model)
        link = cast(Engines, self.link)
        completer = Completer(read_model_files(model), self.tokenizer)
        self._tasks = Tasks(
            Corrections(Corrector.load(model, tokenizer=self.tokenizer), link),
            Completions(completer, link),
            cast(WorkerMetrics, self.counts),
        )

    def call(self, task: msgspec.Struct | list[Any], deadline_ms: int = 1000) -> InboundCall:
        request = Request(1, deadline_ms, Priority.BATCH, msgspec.Raw(encode(task)))
        inbound = InboundCall(self.gateway, request, 0.0)
        self._tasks.handle(inbound)
        return inbound

    @property
    def response(self) -> Response:
        (response,) = self.gateway.responses
        assert self.counts.ends == [response.status]
        return response

    @property
    def text(self) -> GeneratedText:
        assert self.response.status is Status.OK
        return msgspec.msgpack.decode(self.response.payload, type=GeneratedText)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"), layers=1)


@pytest.fixture
def bench(model: Path) -> Bench:
    return Bench(model)


HELLO = GenerateText(TextPrompt("Hello"))


def test_a_text_is_written_from_the_engines_answer(bench: Bench) -> None:
    bench.call(HELLO)
    assert bench.link.asked[0].stream is False
    tokens = bench.tokenizer.encode(" world")
    bench.link.answer(GeneratedTokens(tokens, Finish.STOP, 5, 7, 6, 5, 4, stop_id=2))
    assert bench.text == GeneratedText(" world", Stopped.STOP, None, 5, 7, 6, 5, 4)
    assert bench.gateway.chunks == []


def test_a_stream_sends_each_part_once(bench: Bench) -> None:
    bench.call(msgspec.structs.replace(HELLO, stream=True))
    tokens = bench.tokenizer.encode("a\u20acb!")
    for token in tokens[:-1]:
        bench.link.made([token])
    bench.link.answer(GeneratedTokens(tokens, Finish.LENGTH, 5, len(tokens)))
    assert bench.gateway.chunks == [["text_chunk", part] for part in ("a", "\u20ac", "b", "!")]
    assert (bench.text.text, bench.text.finish) == ("a\u20acb!", Stopped.LENGTH)


def test_a_stop_string_answers_and_gives_the_engine_back(bench: Bench) -> None:
    bench.call(msgspec.structs.replace(HELLO, stop=["\u20acb"], stream=True))
    tokens = bench.tokenizer.encode("a\u20acb!")
    bench.link.made(tokens)
    assert bench.link.cancelled == 1
    assert bench.gateway.chunks == [["text_chunk", "a"]]
    assert bench.text == GeneratedText("a", Stopped.STOP, "\u20acb", 5, len(tokens) - 1)


def test_a_client_that_goes_cancels_the_engines_request(bench: Bench) -> None:
    call = bench.call(HELLO)
    assert call.on_cancel is not None
    call.on_cancel()
    assert bench.link.cancelled == 1
    assert bench.counts.ends == [Status.CANCELLED]


def test_what_the_engine_refuses_is_refused_with_its_reason(bench: Bench) -> None:
    bench.call(HELLO)
    fault = Fault("queue_full", "too many", retry_after_ms=30)
    bench.link.on_reply(Response(1, Status.OVERLOADED, Load(), fault=fault))
    assert (bench.response.status, bench.response.fault) == (Status.OVERLOADED, fault)


@pytest.mark.parametrize("task", [HELLO, CorrectSentence("Hello.")])
def test_without_an_engine_the_pod_is_unavailable(bench: Bench, task: msgspec.Struct) -> None:
    bench.link.up = False
    bench.call(task)
    assert bench.response.status is Status.UNAVAILABLE


@pytest.mark.parametrize("task", [HELLO, CorrectSentence("Hello.")])
def test_what_is_late_never_reaches_the_engine(bench: Bench, task: msgspec.Struct) -> None:
    bench.call(task, deadline_ms=0)
    assert bench.response.status is Status.DEADLINE_EXCEEDED
    assert bench.link.asked == []


def test_only_corrections_tell_the_engine_what_to_expect(bench: Bench) -> None:
    bench.call(CorrectSentence("Hello."))
    bench.call(HELLO)
    assert [bool(request.source) for request in bench.link.asked] == [True, False]


@pytest.mark.parametrize("payload", [["correct"], ["paint", "x"], ["generate_text", "x"], []])
def test_what_is_no_task_is_invalid(bench: Bench, payload: list[Any]) -> None:
    bench.call(payload)
    assert bench.response.status is Status.INVALID
    assert bench.response.fault is not None
    assert bench.response.fault.code == "bad_payload"


def test_a_bad_parameter_is_named(bench: Bench) -> None:
    bench.call(msgspec.structs.replace(HELLO, top_p=2.0))
    expected = Fault(
        "invalid_sampling", "top_p is 2.0; expected more than 0, and 1 at the most", parameter="top_p"
    )
    assert (bench.response.status, bench.response.fault) == (Status.INVALID, expected)
