"""The compiled engine on a thread of its own: nothing is lost, nothing is said twice, whatever happens when."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import (
    Finish,
    GeneratedTokens,
    GenerateTokens,
    QueueFullError,
    Sampling,
    SelfStepping,
)
from copydesk.inference.engine.native import NativeEngine, compiled_engine
from copydesk.inference.engine.native.devices import Device, Runner, RunnerDevice
from copydesk.inference.engine.native.layout import Run, StepResult
from copydesk.inference.engine.native.null_runner import NullRunner
from tests.unit.engine.beside import Beside
from tests.unit.engine.engine_owner import PATIENCE, VOCABULARY, Owner, running


def expected(request: GenerateTokens, count: int) -> list[int]:
    """What the null device makes of a request, if nothing ends it sooner."""
    tokens = list(request.prompt)
    for _ in range(count):
        tokens.append((tokens[-1] + len(tokens)) % VOCABULARY)
    return tokens[len(request.prompt) :]


def wait_for(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0)


def endless(*prompt: int, stream: bool = True) -> GenerateTokens:
    return GenerateTokens(list(prompt or (1,)), 90_000, [], stream=stream)


def short(*prompt: int, tokens: int = 3, **more: Any) -> GenerateTokens:
    return GenerateTokens(list(prompt or (1,)), tokens, [], **more)


every_way = pytest.mark.parametrize(
    "how",
    [
        pytest.param({"asynchronous": False}, id="waits"),
        pytest.param({"asynchronous": True}, id="asynchronous"),
        pytest.param({"asynchronous": True, "overlapping": True}, id="looks ahead"),
    ],
)


def test_it_is_what_the_owner_of_a_self_stepping_engine_expects() -> None:
    owner = Owner()
    assert isinstance(owner.engine, SelfStepping)
    owner.close()


@every_way
def test_answers_come_without_anybody_stepping(how: dict[str, Any]) -> None:
    with running(**how) as owner:
        requests = [short(1, 2, 3), short(*range(150), tokens=9), short(7, tokens=1)]
        indices = [owner.submit(request) for request in requests]
        owner.answered(*indices)
        for index, request in zip(indices, requests, strict=True):
            answer = owner.answers[index]
            assert (answer.tokens, answer.finish) == (expected(request, request.max_tokens), Finish.LENGTH)
        assert owner.engine.load().running == owner.engine.load().queued == 0


@every_way
def test_a_stop_token_ends_an_answer_and_is_named(how: dict[str, Any]) -> None:
    request = short(5, 6, tokens=50)
    tokens = expected(request, 50)
    stop = tokens[20]
    with running(**how) as owner:
        index = owner.submit(GenerateTokens(request.prompt, 50, [stop]))
        owner.answered(index)
    answer = owner.answers[index]
    assert (answer.tokens, answer.finish, answer.stop_id) == (tokens[: tokens.index(stop)], Finish.STOP, stop)


@every_way
def test_a_running_request_ends_soon_after_it_is_cancelled(how: dict[str, Any]) -> None:
    with running(**how, slots=1) as owner:
        endlessly, next_one = owner.submit(endless(3)), owner.submit(short())
        owner.until(lambda: len(owner.streamed.get(endlessly, ())) > 5)
        owner.cancel(endlessly)
        owner.cancel(endlessly)
        owner.answered(endlessly, next_one)
    answer = owner.answers[endlessly]
    assert answer.finish is Finish.CANCELLED
    assert owner.streamed[endlessly] == answer.tokens == expected(endless(3), len(answer.tokens))
    assert owner.answers[next_one].tokens == expected(short(), 3)


@every_way
def test_a_waiting_request_can_be_cancelled_while_others_run(how: dict[str, Any]) -> None:
    with running(**how, slots=1) as owner:
        endlessly, waits = owner.submit(endless()), owner.submit(short())
        owner.until(lambda: endlessly in owner.streamed)
        owner.cancel(waits)
        owner.answered(waits)
        assert endlessly not in owner.answers
    assert owner.answers[waits].finish is Finish.CANCELLED
    assert owner.answers[waits].tokens == []


@every_way
def test_deadlines_are_on_the_monotonic_clock(how: dict[str, Any]) -> None:
    with running(**how) as owner:
        late = owner.submit(endless(), deadline=time.monotonic() - 1.0)
        deadline = time.monotonic() + 0.05
        ends = owner.submit(endless(2), deadline=deadline)
        owner.answered(late, ends)
        assert time.monotonic() >= deadline
    assert owner.answers[late] == GeneratedTokens([], Finish.DEADLINE, prompt_tokens=1, completion_tokens=0)
    assert owner.answers[ends].finish is Finish.DEADLINE
    assert owner.streamed.get(ends, []) == owner.answers[ends].tokens


@every_way
def test_who_is_displaced_hears_of_it_without_a_step(how: dict[str, Any]) -> None:
    owner = Owner(slots=1, queue=0, **how)
    batch = owner.submit(short(), priority=Priority.BATCH)
    urgent = owner.submit(short(2))
    owner.deliver()
    assert owner.answers[batch].finish is Finish.DISPLACED
    with pytest.raises(QueueFullError):
        owner.submit(short(3))
    owner.start()
    owner.answered(urgent)
    owner.close()
    assert list(owner.answers) == [batch, urgent]


@every_way
def test_one_slot_serves_one_after_the_other(how: dict[str, Any]) -> None:
    requests = [short(*range(1 + n % 90), tokens=1 + n % 7) for n in range(200)]
    with running(**how, slots=1) as owner:
        indices = [owner.submit(request) for request in requests]
        owner.answered(*indices)
    assert list(owner.answers) == indices
    for index, request in zip(indices, requests, strict=True):
        assert owner.answers[index].tokens == expected(request, request.max_tokens)


@every_way
def test_streams_carry_the_whole_answer_in_order(how: dict[str, Any]) -> None:
    with running(**how, draft_tokens=50) as owner:
        request = short(4, tokens=40)
        source = expected(request, 40)
        source[11] = 0
        indices = [owner.submit(short(4, tokens=40, source=source, stream=wanted)) for wanted in (True, False)]
        owner.answered(*indices)
    streams, whole = indices
    assert owner.streamed == {streams: owner.answers[whole].tokens}
    assert owner.answers[streams].tokens == owner.answers[whole].tokens == expected(request, 40)
    assert 0 < owner.answers[whole].accepted < owner.answers[whole].drafted


@every_way
def test_callbacks_may_submit_and_cancel(how: dict[str, Any]) -> None:
    with running(**how) as owner:
        endlessly = owner.submit(endless())
        left = iter(range(20))

        def again(_: GeneratedTokens) -> None:
            if next(left, None) is None:
                owner.cancel(endlessly)
            else:
                owner.submit(short(), then=again)

        again(GeneratedTokens([], Finish.STOP, 0, 0))
        owner.answered(endlessly)
    assert owner.answers[endlessly].finish is Finish.CANCELLED
    assert len(owner.answers) == 21


@every_way
def test_sampling_gives_the_tokens_that_the_engine_in_python_gives(how: dict[str, Any]) -> None:
    samplings = [Sampling(), Sampling(temperature=40.0, seed=1), Sampling(temperature=30.0, top_k=9, seed=2)]
    requests = [short(9, 8, tokens=20, sampling=sampling) for sampling in samplings]
    wanted: dict[int, list[int]] = {}
    python = NativeEngine(
        NullRunner(0.0, VOCABULARY),
        vocabulary=VOCABULARY,
        slots=1,
        context=50,
        queue=9,
        prefill_tokens=9,
        draft_tokens=0,
    )
    for index, request in enumerate(requests):

        def keep(answer: GeneratedTokens, index: int = index) -> None:
            wanted[index] = answer.tokens

        python.submit(request, deadline=1e9, priority=Priority.INTERACTIVE, on_done=keep)
    while python.step(0.0):
        pass
    with running(**how) as owner:
        indices = [owner.submit(request) for request in requests]
        owner.answered(*indices)
    assert [owner.answers[index].tokens for index in indices] == [wanted[0], wanted[1], wanted[2]]
    assert len({tuple(tokens) for tokens in wanted.values()}) == 3


class Counting:
    """The null device, which counts its steps and can be made to wait, or to fail, before one of them."""

    def __init__(self) -> None:
        self.begun = self.steps = 0
        self.allowed = threading.Semaphore(0)
        self.gated = False
        self.fails_at = -1

    def run(self, runs: Sequence[Run]) -> StepResult:
        self.begun += 1
        if self.gated:
            assert self.allowed.acquire(timeout=PATIENCE)
        self.steps += 1
        if self.steps == self.fails_at:
            raise ValueError("the device is gone")
        return NullRunner(0.0, VOCABULARY).run(runs)


def test_steps_go_on_while_nobody_has_dealt_with_the_last_ones() -> None:
    runner = Counting()
    with running(RunnerDevice(runner, VOCABULARY)) as owner:
        index = owner.submit(short(tokens=100, stream=True))
        wait_for(lambda: runner.steps == 100)
        assert owner.answers == {}
        owner.answered(index)


def test_without_asynchrony_no_step_begins_before_the_last_one_is_dealt_with() -> None:
    runner = Counting()
    with running(RunnerDevice(runner, VOCABULARY), asynchronous=False) as owner:
        owner.submit(short(tokens=30, stream=False))
        for step in range(1, 31):
            wait_for(lambda: not owner.quiet())
            assert runner.steps == step
            owner.deliver()
        assert len(owner.steps) == 30
        assert len(owner.answers) == 1


def test_nobody_is_woken_for_steps_that_made_nothing_to_tell() -> None:
    runner = Counting()
    runner.gated = True
    with running(RunnerDevice(runner, VOCABULARY)) as owner:
        index = owner.submit(short(tokens=20))
        runner.allowed.release(19)
        wait_for(lambda: runner.begun == 20)
        assert owner.quiet()
        runner.allowed.release()
        owner.answered(index)
        assert len(owner.steps) == 20
        assert all(seconds >= 0.0 for seconds in owner.steps)


def test_durations_of_many_steps_are_told_even_when_nothing_ends() -> None:
    with running() as owner:
        index = owner.submit(endless(stream=False))
        owner.deliver()
        assert len(owner.steps) >= 500
        assert owner.answers == {}
        owner.cancel(index)
        owner.answered(index)


@pytest.mark.parametrize("kind", [RunnerDevice, Beside])
def test_the_age_of_a_step_tells_one_that_hangs_from_none(kind: Callable[[Runner, int], Device]) -> None:
    runner = Counting()
    runner.gated = True
    with running(kind(runner, VOCABULARY)) as owner:
        assert owner.engine.step_age() == 0.0
        index = owner.submit(short(tokens=1))
        wait_for(lambda: owner.engine.step_age() > 0.002)
        runner.allowed.release()
        owner.answered(index)
        assert owner.engine.step_age() == 0.0


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("kind", [RunnerDevice, Beside])
@pytest.mark.parametrize("fails_at", [1, 4])
def test_a_device_that_fails_ends_the_run_with_its_error(
    asynchronous: bool, kind: Callable[[Runner, int], Device], fails_at: int
) -> None:
    runner = Counting()
    runner.fails_at = fails_at
    owner = Owner(kind(runner, VOCABULARY), asynchronous=asynchronous)
    owner.submit(short(tokens=50, stream=True))
    owner.start()

    def over() -> bool:
        if not owner.quiet():
            owner.deliver()
        return owner.failure is not None

    wait_for(over)
    assert owner.engine.step_age() == 0.0
    owner.close()
    assert isinstance(owner.failure, ValueError)
    assert (runner.steps, owner.answers) == (fails_at, {})


def test_sampling_that_fails_ends_the_run_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> list[int]:
        raise ZeroDivisionError

    monkeypatch.setattr(compiled_engine, "choose", fail)
    owner = Owner()
    owner.submit(short(sampling=Sampling(temperature=1.0)))
    with pytest.raises(ZeroDivisionError):
        owner.engine.run()
    owner.close()


def test_scores_reach_the_chooser_as_the_device_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[Any] = []

    def first_of_the_largest(scores: Any, *_: Any, **__: Any) -> list[int]:
        tables.append(scores.copy())
        return [int(scores[0].argmax())]

    monkeypatch.setattr(compiled_engine, "choose", first_of_the_largest)
    request = short(2, 3, tokens=4, sampling=Sampling(temperature=1.0))
    with running(slots=2) as owner:
        greedy, sampled = owner.submit(short(2, 3, tokens=4)), owner.submit(request)
        owner.answered(greedy, sampled)
    assert owner.answers[sampled].tokens == owner.answers[greedy].tokens == expected(request, 4)
    rows = np.concatenate(tables)
    np.testing.assert_array_equal(rows, np.eye(VOCABULARY, dtype=np.float32)[expected(request, 4)])


@every_way
def test_a_halt_ends_the_run_at_work_when_idle_and_before_it_begins(how: dict[str, Any]) -> None:
    for requests in ([], [endless()]):
        with running(**how) as owner:
            for request in requests:
                owner.submit(request)
        assert owner.failure is None
    owner = Owner(**how)
    owner.engine.halt()
    owner.engine.run()
    owner.close()


@every_way
def test_nothing_is_lost_or_said_twice_whatever_many_threads_do(how: dict[str, Any]) -> None:
    threads, each = 4, 500
    refused: list[int] = []
    wanted: dict[int, GenerateTokens] = {}
    with running(**how, slots=5, queue=30, draft_tokens=30) as owner:

        def client(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(each):
                request = short(
                    *(rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 80))),
                    tokens=rng.randint(1, 30),
                    source=[rng.randrange(VOCABULARY) for _ in range(rng.choice((0, 5)))],
                    stream=rng.random() < 0.5,
                )
                try:
                    index = owner.submit(
                        request,
                        deadline=time.monotonic() + rng.choice((100.0, 100.0, 0.005)),
                        priority=rng.choice(list(Priority)),
                    )
                except QueueFullError:
                    refused.append(seed)
                    continue
                wanted[index] = request
                if rng.random() < 0.2:
                    owner.cancel(index)

        clients = [threading.Thread(target=client, args=(seed,)) for seed in range(threads)]
        for thread in clients:
            thread.start()
        while any(thread.is_alive() for thread in clients):
            if not owner.quiet():
                owner.deliver()
            time.sleep(0)
        owner.answered(*wanted)
        assert (owner.engine.load().running, owner.engine.load().queued) == (0, 0)
    assert len(wanted) + len(refused) == threads * each
    assert set(owner.answers) == set(wanted)
    for index, request in wanted.items():
        answer = owner.answers[index]
        assert answer.tokens == expected(request, len(answer.tokens))
        assert owner.streamed.get(index, []) == (answer.tokens if request.stream else [])
        if answer.finish is Finish.LENGTH:
            assert len(answer.tokens) == request.max_tokens
