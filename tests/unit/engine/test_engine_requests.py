"""What an engine does with priorities, streams and sampling: the one in Python and the compiled one alike."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import (
    Engine,
    Finish,
    GeneratedTokens,
    GenerateTokens,
    InvalidSamplingError,
    QueueFullError,
    Sampling,
)
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import CompiledEngine, NativeEngine
from copydesk.inference.engine.native.devices import RunnerDevice
from copydesk.inference.engine.native.layout import Run, StepResult
from copydesk.inference.engine.outlook import Crowd, seconds_to_answer

VOCABULARY = 40
LATER = 1e9


class Waves:
    """A model whose scores are smooth, so that sampling has a choice: by the sum of all tokens so far."""

    def __init__(self) -> None:
        self.cache: dict[int, list[int]] = {}

    def run(self, runs: Sequence[Run]) -> StepResult:
        result = StepResult({})
        for run in runs:
            held = self.cache.setdefault(run.slot, [])
            held[run.start :] = run.tokens
            if run.samples:
                rows = np.stack(
                    [self._scores(total) for total in list(itertools.accumulate(held))[-run.samples :]]
                )
                if run.scores:
                    result.scores[run.slot] = rows
                else:
                    result.tokens[run.slot] = rows.argmax(-1).tolist()
        return result

    def _scores(self, total: int) -> Any:
        return (4.0 * np.cos((np.arange(VOCABULARY) - total) * 0.7)).astype(np.float32)


def engine(
    core: str, *, slots: int = 1, queue: int = 1, draft_tokens: int = 0, cache_tokens: int | None = None
) -> Engine:
    sizes: dict[str, Any] = {
        "vocabulary": VOCABULARY,
        "slots": slots,
        "context": 64,
        "queue": queue,
        "prefill_tokens": 16,
        "draft_tokens": draft_tokens,
        "cache_tokens": cache_tokens,
    }
    if core == "python":
        return NativeEngine(Waves(), **sizes)
    return CompiledEngine(load_library(), RunnerDevice(Waves(), VOCABULARY), **sizes)


class Client:
    """Submits, and keeps what comes back."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: dict[str, GeneratedTokens] = {}
        self.streamed: dict[str, list[int]] = {}

    def submit(self, name: str, request: GenerateTokens, priority: Priority = Priority.INTERACTIVE) -> int:
        self.streamed[name] = []
        return self.engine.submit(
            request,
            deadline=LATER,
            priority=priority,
            on_done=lambda answer: self.answers.__setitem__(name, answer),
            on_tokens=self.streamed[name].extend,
        )

    def drain(self) -> None:
        while self.engine.step(0.0):
            pass


def request(**changes: Any) -> GenerateTokens:
    fields: dict[str, Any] = {"prompt": [3, 1, 4], "max_tokens": 8, "stop_ids": []}
    return GenerateTokens(**fields | changes)


cores = pytest.mark.parametrize("core", ["python", "compiled"])


@cores
def test_an_interactive_request_takes_the_place_of_the_last_batch_request_that_waits(core: str) -> None:
    client = Client(engine(core, queue=2))
    client.submit("runs", request())
    client.engine.step(0.0)
    client.submit("first batch", request(), Priority.BATCH)
    client.submit("last batch", request(), Priority.BATCH)
    client.submit("urgent", request())
    client.drain()
    assert client.answers.pop("last batch").finish is Finish.DISPLACED
    assert list(client.answers) == ["runs", "urgent", "first batch"]


@cores
@pytest.mark.parametrize("priority", list(Priority))
def test_nobody_makes_room_for_an_equal(core: str, priority: Priority) -> None:
    client = Client(engine(core))
    client.submit("runs", request())
    client.engine.step(0.0)
    client.submit("waits", request(), priority)
    with pytest.raises(QueueFullError):
        client.submit("too much", request(), Priority.BATCH if priority is Priority.BATCH else priority)
    client.drain()
    assert list(client.answers) == ["runs", "waits"]


@cores
@pytest.mark.parametrize("draft_tokens", [0, 30])
def test_streamed_tokens_are_those_of_the_answer(core: str, draft_tokens: int) -> None:
    client = Client(engine(core, draft_tokens=draft_tokens))
    client.submit("streams", request(stream=True))
    client.drain()
    client.submit("does not", request())
    client.drain()
    assert client.streamed["streams"] == client.answers["streams"].tokens == client.answers["does not"].tokens
    assert client.streamed["does not"] == []


@cores
def test_a_stream_does_not_carry_the_stop_token_and_the_answer_names_it(core: str) -> None:
    client = Client(engine(core))
    client.submit("whole", request())
    client.drain()
    stop = client.answers["whole"].tokens[3]
    client.submit("stopped", request(stop_ids=[stop], stream=True))
    client.drain()
    answer = client.answers["stopped"]
    assert client.streamed["stopped"] == answer.tokens == client.answers["whole"].tokens[: len(answer.tokens)]
    assert (answer.finish, answer.stop_id) == (Finish.STOP, stop)


@cores
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.3, seed=5),
        Sampling(temperature=0.7, top_p=0.8, top_k=9, seed=11),
        Sampling(presence_penalty=1.5, frequency_penalty=0.5),
        Sampling(repetition_penalty=1.4, temperature=0.5, min_p=0.05, seed=2),
    ],
)
def test_sampling_gives_the_same_tokens_alone_in_company_and_with_drafts(core: str, sampling: Sampling) -> None:
    alone = Client(engine(core))
    alone.submit("it", request(sampling=sampling, max_tokens=20))
    alone.drain()
    wanted = alone.answers["it"].tokens
    company = Client(engine(core, slots=4, queue=9, draft_tokens=25))
    company.submit("other", request(prompt=[7, 7, 7]))
    company.submit("it", request(sampling=sampling, max_tokens=20, source=[*wanted[:5], 0, *wanted[5:]]))
    company.submit("another", request(sampling=Sampling(temperature=2.0, seed=1), max_tokens=15))
    company.drain()
    assert company.answers["it"].tokens == wanted
    assert company.answers["it"].accepted > 0


@cores
def test_both_kinds_of_requests_share_a_step(core: str) -> None:
    client = Client(engine(core, slots=2))
    client.submit("greedy", request())
    client.submit("penalised", request(sampling=Sampling(presence_penalty=2.0)))
    client.drain()
    assert len(set(client.answers["penalised"].tokens)) > len(set(client.answers["greedy"].tokens)) - 1
    assert client.answers["greedy"].passes == client.answers["penalised"].passes == 8


@cores
def test_a_parameter_that_means_nothing_is_refused(core: str) -> None:
    with pytest.raises(InvalidSamplingError) as raised:
        Client(engine(core)).submit("bad", request(sampling=Sampling(temperature=-1.0)))
    assert raised.value.parameter == "temperature"


@cores
def test_the_outlook_is_bright_while_a_slot_is_free_and_darkens_with_the_queue(core: str) -> None:
    client = Client(engine(core, slots=1, queue=9))
    client.submit("teaches how long one takes", request())
    client.drain()
    assert client.engine.outlook(Priority.BATCH) == 0.0
    client.submit("runs", request())
    client.engine.step(0.0)
    ahead = [client.engine.outlook(Priority.INTERACTIVE)]
    for number in range(3):
        client.submit(f"waits {number}", request(), Priority.BATCH)
        ahead.append(client.engine.outlook(Priority.BATCH))
    assert ahead == sorted(ahead)
    assert 0.0 < ahead[0] < ahead[-1]
    assert client.engine.outlook(Priority.INTERACTIVE) == ahead[0]
    client.drain()


@cores
def test_free_slots_are_no_comfort_where_the_cache_has_no_room(core: str) -> None:
    client = Client(engine(core, slots=8, queue=1, cache_tokens=64))
    client.submit("teaches how long one takes", request())
    client.drain()
    long = request(prompt=[1] * 40, max_tokens=24)
    client.submit("fills the cache", long)
    client.engine.step(0.0)
    client.submit("waits", long)
    assert client.engine.outlook(Priority.INTERACTIVE) > 0.0
    with pytest.raises(QueueFullError):
        client.submit("one too many", long)
    assert (client.engine.load().running, client.engine.load().queued) == (1, 1)
    client.drain()
    assert client.engine.outlook(Priority.INTERACTIVE) == 0.0


@given(ahead=st.integers(0, 50), free=st.integers(0, 4), slots=st.integers(4, 64), seconds=st.floats(0.0, 10.0))
def test_a_forecast_is_no_less_than_a_request_takes_once_one_has_to_wait(
    ahead: int, free: int, slots: int, seconds: float
) -> None:
    forecast = seconds_to_answer(Crowd(ahead, free, slots, seconds))
    assert forecast == 0.0 if free > ahead else forecast >= seconds
