import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from copydesk.common.rpc.frames import Load, Priority
from copydesk.inference.engine import Finish, GeneratedTokens, GenerateTokens, OnDone, OnTokens
from copydesk.inference.pod.step_loop import StepLoop

RESULT = GeneratedTokens(tokens=[5], finish=Finish.STOP, prompt_tokens=1, completion_tokens=2)
REQUEST = GenerateTokens(prompt=[1], max_tokens=4, stop_ids=[2])


class OneStepEngine:
    """Finishes all that was submitted in the next step."""

    context, capacity, queue = 64, 4, 4

    def __init__(self, before_step: Callable[[], None] = lambda: None) -> None:
        self.before_step = before_step
        self.waiting: list[OnDone] = []
        self.step_threads: set[int] = set()

    def submit(
        self,
        request: GenerateTokens,
        *,
        deadline: float,
        priority: Priority,
        on_done: OnDone,
        on_tokens: OnTokens | None = None,
    ) -> int:
        self.waiting.append(on_done)
        return len(self.waiting)

    def cancel(self, request_id: int) -> None:
        raise AssertionError("nothing is cancelled here")

    def step(self, now: float) -> bool:
        self.before_step()
        self.step_threads.add(threading.get_ident())
        ended, self.waiting = self.waiting, []
        for on_done in ended:
            on_done(RESULT)
        return bool(self.waiting)

    def load(self) -> Load:
        return Load()

    def outlook(self, priority: Priority) -> float:
        return 0.0


@contextmanager
def running(
    engine: OneStepEngine, *, on_crash: Callable[[Exception], None] | None = None
) -> Iterator[tuple[StepLoop, list[float]]]:
    durations: list[float] = []
    steps = StepLoop(
        engine,
        loop=asyncio.get_running_loop(),
        on_crash=on_crash or (lambda error: pytest.fail(str(error))),
        on_step=durations.append,
    )
    steps.start()
    try:
        yield steps, durations
    finally:
        assert steps.stop(5.0)


async def submit(engine: OneStepEngine, steps: StepLoop) -> tuple[GeneratedTokens, int]:
    answer: asyncio.Future[tuple[GeneratedTokens, int]] = asyncio.get_running_loop().create_future()

    def take(result: GeneratedTokens) -> None:
        answer.set_result((result, threading.get_ident()))

    done = steps.on_loop(take)
    engine.submit(REQUEST, deadline=0.0, priority=Priority.INTERACTIVE, on_done=done)
    steps.wake()
    return await asyncio.wait_for(answer, 5.0)


async def test_results_arrive_on_the_event_loop_and_steps_run_elsewhere() -> None:
    engine = OneStepEngine()
    with running(engine) as (steps, durations):
        results = [await submit(engine, steps) for _ in range(20)]
    assert results == [(RESULT, threading.get_ident())] * 20
    assert threading.get_ident() not in engine.step_threads
    assert len(durations) >= 20


async def test_what_one_step_finished_comes_in_the_order_it_was_finished() -> None:
    engine = OneStepEngine()
    order: list[int] = []
    last = asyncio.Event()

    def ended(number: int, _: GeneratedTokens) -> None:
        order.append(number)
        if number == 9:
            last.set()

    with running(engine) as (steps, _):
        for number in range(10):
            done = steps.on_loop(functools.partial(ended, number))
            engine.submit(REQUEST, deadline=0.0, priority=Priority.BATCH, on_done=done)
        steps.wake()
        await asyncio.wait_for(last.wait(), 5.0)
    assert order == list(range(10))


async def test_a_step_that_raises_is_reported_on_the_event_loop_and_is_the_last() -> None:
    class BrokenError(Exception):
        pass

    steps_taken = []

    def fail() -> None:
        steps_taken.append(1)
        raise BrokenError

    crash: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    with running(OneStepEngine(fail), on_crash=crash.set_result) as (steps, _):
        assert isinstance(await asyncio.wait_for(crash, 5.0), BrokenError)
        steps.wake()
    assert len(steps_taken) == 1


async def test_the_age_of_a_step_that_does_not_return_grows_and_is_zero_between_steps() -> None:
    entered, released = threading.Event(), threading.Event()
    now = [100.0]

    def hang() -> None:
        entered.set()
        released.wait(10.0)

    steps = StepLoop(
        OneStepEngine(hang),
        loop=asyncio.get_running_loop(),
        on_crash=lambda error: pytest.fail(str(error)),
        on_step=lambda _: None,
        clock=lambda: now[0],
    )
    assert steps.step_age() == 0.0
    steps.start()
    await asyncio.to_thread(entered.wait, 5.0)
    now[0] = 107.5
    assert steps.step_age() == 7.5
    assert not steps.stop(0.0)
    released.set()
    assert steps.stop(5.0)
    assert steps.step_age() == 0.0
