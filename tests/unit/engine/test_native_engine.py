import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.common.rpc.frames import Load, Priority
from copydesk.inference.engine import (
    CacheUse,
    Caching,
    EmptyPromptError,
    Engine,
    Finish,
    GeneratedTokens,
    GenerateTokens,
    InvalidMaxTokensError,
    PromptTooLongError,
    QueueFullError,
    RequestError,
    UnknownTokenError,
)
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import CompiledEngine, NativeEngine
from copydesk.inference.engine.native.devices import RunnerDevice
from copydesk.inference.engine.native.layout import Run, StepResult
from tests.unit.engine.reference import imperfect

VOCABULARY = 50
LATER = 1e9


class Arithmetic:
    """A model whose next token is the sum of all before it, from a cache that it checks for holes."""

    def __init__(self) -> None:
        self.cache: dict[int, list[int]] = {}
        self.steps: list[list[Run]] = []

    def run(self, runs: Sequence[Run]) -> StepResult:
        self.steps.append(list(runs))
        assert len({run.slot for run in runs}) == len(runs), "two requests share a slot"
        for run in runs:
            held = self.cache.setdefault(run.slot, [])
            assert run.start <= len(held), "a position was skipped"
            assert all(0 <= token < VOCABULARY for token in run.tokens)
            held[run.start :] = run.tokens
        return StepResult({run.slot: self._sums(run) for run in runs if run.samples})

    def _sums(self, run: Run) -> list[int]:
        sums = [total % VOCABULARY for total in itertools.accumulate(self.cache[run.slot])]
        return sums[-run.samples :]


def expected(request: GenerateTokens, context: int) -> tuple[list[int], Finish]:
    tokens: list[int] = []
    while True:
        token = sum(request.prompt + tokens) % VOCABULARY
        if token in request.stop_ids:
            return tokens, Finish.STOP
        tokens.append(token)
        if len(tokens) == request.max_tokens or len(request.prompt) + len(tokens) == context:
            return tokens, Finish.LENGTH


class Bench:
    """An engine over `Arithmetic`, and what it delivered by request id; `core` says which of the two."""

    core = "python"

    def __init__(
        self,
        *,
        slots: int = 2,
        queue: int = 3,
        context: int = 32,
        prefill_tokens: int = 8,
        draft_tokens: int = 0,
        cache_tokens: int | None = None,
    ) -> None:
        self.model = Arithmetic()
        self.ticks = iter(range(0, 10_000_000, 5))
        sizes: dict[str, Any] = {
            "vocabulary": VOCABULARY,
            "slots": slots,
            "context": context,
            "queue": queue,
            "prefill_tokens": prefill_tokens,
            "draft_tokens": draft_tokens,
            "cache_tokens": cache_tokens,
        }
        self.engine: Engine
        if self.core == "python":
            self.engine = NativeEngine(self.model, clock=lambda: next(self.ticks) / 1000, **sizes)
        else:
            self.engine = CompiledEngine(load_library(), RunnerDevice(self.model, VOCABULARY), **sizes)
        self.answers: dict[int, GeneratedTokens] = {}
        self.calls: Counter[int] = Counter()

    def submit(
        self,
        prompt: list[int],
        max_tokens: int = 4,
        *,
        stop_ids: Sequence[int] = (),
        source: Sequence[int] = (),
        deadline: float = LATER,
        priority: Priority = Priority.INTERACTIVE,
    ) -> int:
        box: list[int] = []

        def deliver(answer: GeneratedTokens) -> None:
            while not box:  # a step on another thread may be quicker than the return of submit
                time.sleep(0)
            self.calls[box[0]] += 1
            self.answers[box[0]] = answer

        request = GenerateTokens(prompt, max_tokens, list(stop_ids), list(source))
        box.append(self.engine.submit(request, deadline=deadline, priority=priority, on_done=deliver))
        return box[0]

    def drain(self) -> None:
        while self.engine.step(0.0):
            pass


@pytest.fixture(scope="module", params=["python", "compiled"], autouse=True)
def core(request: pytest.FixtureRequest) -> None:
    Bench.core = request.param


def test_an_idle_engine_has_nothing_to_do() -> None:
    bench = Bench()
    assert bench.engine.step(0.0) is False
    assert bench.model.steps == []


def test_a_request_is_answered_by_the_step_that_ends_it() -> None:
    bench = Bench()
    number = bench.submit([3, 4], max_tokens=3)
    assert bench.engine.step(0.0) is True
    assert bench.engine.step(0.0) is True
    assert bench.answers == {}
    assert bench.engine.step(0.0) is False
    assert bench.answers[number] == GeneratedTokens(
        tokens=[7, 14, 28], finish=Finish.LENGTH, prompt_tokens=2, completion_tokens=3, passes=3
    )


def test_a_stop_id_inside_the_prompt_stops_nothing() -> None:
    bench = Bench()
    number = bench.submit([1, 2, 7], max_tokens=3, stop_ids=[7, 20])
    bench.drain()
    assert bench.answers[number] == GeneratedTokens([10], Finish.STOP, 3, 2, passes=2, stop_id=20)


def test_newcomers_join_between_steps_and_wait_for_a_slot_when_all_are_taken() -> None:
    bench = Bench(slots=2)
    first, second, third = bench.submit([1], 2), bench.submit([1], 5), bench.submit([1], 5)
    bench.engine.step(0.0)
    assert bench.engine.load().running == 2
    bench.engine.step(0.0)
    assert list(bench.answers) == [first]
    bench.engine.step(0.0)
    assert [len(run.tokens) for run in bench.model.steps[-1]] == [1, 1]
    bench.drain()
    assert list(bench.answers) == [first, second, third]


def test_newcomers_wait_when_the_cache_could_not_hold_all_that_they_may_need() -> None:
    bench = Bench(slots=3, cache_tokens=64)
    long = bench.submit([1] * 20, 12)  # 32 tokens: a page
    short, next_one = bench.submit([1], 3), bench.submit([2], 1)
    bench.engine.step(0.0)
    assert (bench.engine.load().running, bench.engine.load().queued) == (2, 1)
    bench.drain()
    assert list(bench.answers) == [short, next_one, long]


def test_what_running_requests_have_reserved_of_the_cache_is_told() -> None:
    bench = Bench(slots=3, cache_tokens=96)
    assert isinstance(bench.engine, Caching)
    assert bench.engine.cache_use() == CacheUse(reserved=0, limit=96)
    bench.submit([1] * 20, 12)  # 32 tokens: a page
    bench.submit([1], 3)
    bench.engine.step(0.0)
    assert bench.engine.cache_use() == CacheUse(reserved=64, limit=96)
    bench.drain()
    assert bench.engine.cache_use() == CacheUse(reserved=0, limit=96)


def test_a_cache_too_small_for_the_longest_request_is_as_large_as_that() -> None:
    bench = Bench(slots=3, cache_tokens=1)
    longest, other = bench.submit([1] * 30, 9), bench.submit([2], 1)
    bench.engine.step(0.0)
    assert bench.engine.load().running == 1
    bench.drain()
    assert list(bench.answers) == [longest, other]


def test_batch_waits_behind_interactive() -> None:
    bench = Bench(slots=1)
    batch = bench.submit([1], 1, priority=Priority.BATCH)
    interactive = bench.submit([1], 1)
    bench.drain()
    assert list(bench.answers) == [interactive, batch]


def test_an_expired_request_ends_before_it_costs_anything() -> None:
    bench = Bench()
    late = bench.submit([1], deadline=5.0)
    assert bench.engine.step(5.0) is False
    assert bench.answers[late] == GeneratedTokens([], Finish.DEADLINE, prompt_tokens=1, completion_tokens=0)
    assert bench.model.steps == []


def test_a_running_request_ends_at_its_deadline_with_what_it_has() -> None:
    bench = Bench(slots=1)
    late, next_one = bench.submit([1], 9, deadline=5.0), bench.submit([2], 1)
    bench.engine.step(3.0)
    bench.engine.step(4.9)
    bench.engine.step(5.0)
    assert bench.answers[late] == GeneratedTokens([1, 2], Finish.DEADLINE, 1, 2, passes=2)
    assert bench.answers[next_one].tokens == [2]


def test_cancelled_requests_leave_before_the_next_step_and_free_their_slot() -> None:
    bench = Bench(slots=1)
    running, waiting, last = bench.submit([1], 9), bench.submit([1], 9), bench.submit([2], 1)
    bench.engine.step(0.0)
    bench.engine.cancel(running)
    bench.engine.cancel(waiting)
    bench.engine.cancel(waiting)
    assert bench.engine.step(0.0) is False
    assert bench.answers[running].finish is bench.answers[waiting].finish is Finish.CANCELLED
    assert bench.answers[running].tokens == [1]
    assert bench.answers[last].tokens == [2]
    assert set(bench.calls.values()) == {1}


def test_cancelling_what_is_unknown_or_over_changes_nothing() -> None:
    bench = Bench()
    number = bench.submit([1], 1)
    bench.drain()
    bench.engine.cancel(number)
    bench.engine.cancel(12345)
    assert bench.engine.step(0.0) is False
    assert bench.calls[number] == 1


def test_a_request_may_be_submitted_from_the_answer_of_another() -> None:
    bench = Bench()
    done: list[list[int]] = []

    def again(answer: GeneratedTokens) -> None:
        done.append(answer.tokens)
        if len(done) < 3:
            request = GenerateTokens(prompt=answer.tokens, max_tokens=1, stop_ids=[])
            bench.engine.submit(request, deadline=LATER, priority=Priority.BATCH, on_done=again)

    first = GenerateTokens(prompt=[3, 4], max_tokens=2, stop_ids=[])
    bench.engine.submit(first, deadline=LATER, priority=Priority.BATCH, on_done=again)
    bench.drain()
    assert done == [[7, 14], [21], [21]]


def test_as_many_wait_as_may_and_no_more() -> None:
    bench = Bench(slots=2, queue=3)
    for _ in range(5):
        bench.submit([1])
    with pytest.raises(QueueFullError) as raised:
        bench.submit([1])
    assert raised.value.limit == 3
    bench.engine.step(0.0)
    with pytest.raises(QueueFullError):
        bench.submit([1])
    bench.drain()
    bench.submit([1])


def test_without_a_queue_the_slots_still_take_requests() -> None:
    bench = Bench(slots=2, queue=0)
    bench.submit([1])
    bench.submit([1])
    with pytest.raises(QueueFullError):
        bench.submit([1])


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "error", "fields"),
    [
        ([], 1, EmptyPromptError, {}),
        ([1] * 32, 1, PromptTooLongError, {"tokens": 32, "limit": 31}),
        ([1, VOCABULARY], 1, UnknownTokenError, {"token": VOCABULARY, "vocabulary": VOCABULARY}),
        ([1, -1], 1, UnknownTokenError, {"token": -1, "vocabulary": VOCABULARY}),
        ([1], 0, InvalidMaxTokensError, {"max_tokens": 0}),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_the_reason(
    prompt: list[int], max_tokens: int, error: type[RequestError], fields: dict[str, int]
) -> None:
    bench = Bench(context=32)
    with pytest.raises(error) as raised:
        bench.submit(prompt, max_tokens)
    assert vars(raised.value) == fields
    assert bench.engine.load().queued == 0


def test_the_load_counts_requests_and_times_steps() -> None:
    bench = Bench(slots=2)
    assert bench.engine.load() == Load(running=0, queued=0, capacity=2, step_ms=0.0)
    for _ in range(3):
        bench.submit([1])
    assert bench.engine.load().queued == 3
    bench.engine.step(0.0)
    load = bench.engine.load()
    assert (load.running, load.queued, load.capacity) == (2, 1, 2)
    assert load.step_ms == pytest.approx(5.0) if bench.core == "python" else load.step_ms > 0.0


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    slots=st.integers(1, 5),
    prefill_tokens=st.integers(1, 20),
    draft_tokens=st.sampled_from([0, 1, 6, 100]),
    cancel=st.sampled_from([0.0, 0.3]),
)
def test_whatever_comes_and_goes_each_request_gets_its_own_answer_once(
    seed: int, slots: int, prefill_tokens: int, draft_tokens: int, cancel: float
) -> None:
    rng = random.Random(seed)
    bench = Bench(slots=slots, queue=100, prefill_tokens=prefill_tokens, draft_tokens=draft_tokens)
    requests: dict[int, tuple[GenerateTokens, float]] = {}
    cancelled: set[int] = set()
    for now in range(60):
        for _ in range(rng.choice((0, 0, 1, 3)) if now < 20 else 0):
            prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 31))]
            stops = rng.sample(range(VOCABULARY), 5)
            deadline = rng.choice((LATER, now + rng.uniform(0, 20)))
            request = GenerateTokens(prompt, rng.randint(1, 12), stops)
            number = bench.submit(
                prompt,
                request.max_tokens,
                stop_ids=stops,
                source=imperfect(rng, expected(request, context=32)[0], VOCABULARY),
                deadline=deadline,
                priority=rng.choice(list(Priority)),
            )
            requests[number] = request, deadline
        live = [number for number in requests if number not in bench.answers]
        if live and rng.random() < cancel:
            cancelled.add(number := rng.choice(live))
            bench.engine.cancel(number)
        bench.engine.step(float(now))
    bench.drain()
    assert bench.calls == Counter(requests.keys())
    for number, answer in bench.answers.items():
        request, deadline = requests[number]
        tokens, finish = expected(request, context=32)
        if answer.finish is Finish.CANCELLED:
            assert number in cancelled
        elif answer.finish is Finish.DEADLINE:
            assert deadline < LATER
        else:
            assert (answer.tokens, answer.finish) == (tokens, finish)
        assert answer.tokens == tokens[: len(answer.tokens)]
        assert answer.completion_tokens == len(answer.tokens) + (answer.finish is Finish.STOP)
        assert 0 <= answer.accepted <= min(answer.drafted, answer.completion_tokens)
    assert all(sum(run.samples for run in step) <= slots + draft_tokens for step in bench.model.steps)


def test_an_answer_that_repeats_its_source_takes_one_pass() -> None:
    bench = Bench(prefill_tokens=32, draft_tokens=100)
    number = bench.submit([3, 4], 20, stop_ids=[6, 48], source=[7, 14, 28, 6])
    assert bench.engine.step(0.0) is False
    assert bench.answers[number] == GeneratedTokens(
        [7, 14, 28], Finish.STOP, prompt_tokens=2, completion_tokens=4, passes=1, drafted=3, accepted=3, stop_id=6
    )


def test_after_an_edit_the_source_is_taken_up_again_where_the_answer_goes_on() -> None:
    bench = Bench(prefill_tokens=32, draft_tokens=100)
    number = bench.submit([3, 4], 20, stop_ids=[48], source=[7, 14, 11, 6, 12, 24])
    bench.drain()
    assert bench.answers[number] == GeneratedTokens(
        tokens=[7, 14, 28, 6, 12, 24],
        finish=Finish.STOP,
        prompt_tokens=2,
        completion_tokens=7,
        passes=2,
        drafted=6 + 3,
        accepted=2 + 3,
        stop_id=48,
    )


def test_without_a_source_what_followed_the_same_tokens_before_is_drafted() -> None:
    bench = Bench(context=64, prefill_tokens=64, draft_tokens=100)
    repeating = [25, 0, 25, 0]
    number = bench.submit(repeating, 12)
    bench.drain()
    answer = bench.answers[number]
    assert (answer.tokens, answer.finish) == expected(GenerateTokens(repeating, 12, []), context=64)
    assert answer.passes < len(answer.tokens)
    assert answer.accepted > 0


@pytest.mark.parametrize("token", [-1, VOCABULARY, 2**64])
def test_a_source_may_hold_what_no_prompt_may(token: int) -> None:
    bench = Bench(prefill_tokens=32, draft_tokens=100)
    number = bench.submit([3, 4], 4, source=[7, token, 28])
    bench.drain()
    assert bench.answers[number].tokens == [7, 14, 28, 6]


def test_a_long_prompt_is_not_drafted_after_until_it_is_in() -> None:
    bench = Bench(prefill_tokens=8, draft_tokens=100)
    number = bench.submit([1] * 20, 3, source=[20, 40, 30])
    bench.drain()
    assert [(len(run.tokens), run.samples) for (run,) in bench.model.steps] == [(8, 0), (8, 0), (4 + 2, 3)]
    answer = bench.answers[number]
    assert (answer.tokens, answer.passes, answer.drafted, answer.accepted) == ([20, 40, 30], 3, 2, 2)


def test_a_refuted_draft_leaves_nothing_behind_for_the_next_tenant_of_its_slot() -> None:
    bench = Bench(slots=1, prefill_tokens=32, draft_tokens=100)
    first = bench.submit([3, 4], 2, source=[8] * 20)
    second = bench.submit([5], 3)
    bench.drain()
    assert (bench.answers[first].tokens, bench.answers[second].tokens) == ([7, 14], [5, 10, 20])


def test_other_threads_may_submit_and_cancel_while_a_step_runs() -> None:
    bench = Bench(slots=4, queue=10_000)
    submitted: list[int] = []
    stop = threading.Event()

    def flood() -> None:
        for index in range(300):
            submitted.append(bench.submit([index % VOCABULARY], 3))
            if index % 3 == 0:
                bench.engine.cancel(submitted[-1])
        stop.set()

    thread = threading.Thread(target=flood)
    thread.start()
    while not stop.is_set():
        bench.engine.step(0.0)
    thread.join()
    bench.drain()
    assert bench.calls == Counter(submitted)
