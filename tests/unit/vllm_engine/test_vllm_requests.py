"""What the engine over vLLM does with requests: who runs, who waits, how each of them ends."""

import asyncio

import pytest

from copydesk.common.rpc.frames import Load, Priority
from copydesk.inference.engine import (
    EmptyPromptError,
    Finish,
    GeneratedTokens,
    GenerateTokens,
    InvalidSamplingError,
    LoopEngine,
    PromptTooLongError,
    QueueFullError,
    Sampling,
    UnknownTokenError,
)
from copydesk.inference.engine.vllm.client import Acceptance, CoreLostError, Ended
from tests.unit.vllm_engine.conftest import Rig
from tests.unit.vllm_engine.fake_vllm import settle

PLAIN = GenerateTokens(prompt=[3, 4], max_tokens=8, stop_ids=[2])
STREAMED = GenerateTokens(prompt=[3, 4], max_tokens=8, stop_ids=[2], stream=True)


async def test_it_is_what_a_pod_expects_of_an_engine_on_its_loop(rig: Rig) -> None:
    assert isinstance(rig.engine, LoopEngine)


async def test_an_answer_comes_without_its_stop_token_which_is_named_and_counted(rig: Rig) -> None:
    rig.client.ask("a", PLAIN)
    await settle()
    rig.vllm.make("1", 7, 8, 9)
    found = Acceptance(verified=1, drafted=6, accepted=2)
    rig.vllm.make("1", 2, ended=Ended.STOP, stop_id=2, acceptance=found)
    await settle()
    assert rig.client.answers["a"] == GeneratedTokens([7, 8, 9], Finish.STOP, 2, 4, 2, 6, 2, 2)
    assert rig.client.streamed["a"] == []
    assert rig.engine.load() == Load(0, 0, 2, rig.engine.load().step_ms)


async def test_an_answer_that_runs_into_its_limit_keeps_every_token(rig: Rig) -> None:
    rig.client.ask("a", PLAIN)
    await settle()
    rig.vllm.make("1", 7, 8, ended=Ended.LENGTH)
    await settle()
    assert rig.client.answers["a"] == GeneratedTokens([7, 8], Finish.LENGTH, 2, 2, 2)


async def test_tokens_are_streamed_as_they_come_and_the_stop_token_never(rig: Rig) -> None:
    rig.client.ask("a", STREAMED)
    await settle()
    rig.vllm.make("1", 7)
    await settle()
    assert rig.client.streamed["a"] == [[7]]
    rig.vllm.make("1", 8, 9, 2, ended=Ended.STOP, stop_id=2)
    await settle()
    assert rig.client.streamed["a"] == [[7], [8, 9]]
    assert rig.client.answers["a"].tokens == [7, 8, 9]


async def test_vllm_gets_no_more_than_it_runs_and_the_next_when_one_has_ended(rig: Rig) -> None:
    for name in "abcd":
        rig.client.ask(name, PLAIN)
    await settle()
    assert rig.vllm.everyone == ["1", "2"]
    assert rig.engine.load() == Load(2, 2, 2)
    rig.vllm.make("2", 7, ended=Ended.LENGTH)
    await settle()
    assert rig.vllm.everyone == ["1", "2", "3"]
    assert (rig.engine.load().running, rig.engine.load().queued) == (2, 1)


async def test_many_slots_have_a_few_more_at_hand_which_count_as_waiting() -> None:
    rig = Rig()
    rig.engine.capacity, rig.engine.queue = 32, 40
    await rig.engine.open()
    for number in range(72):
        rig.client.ask(str(number), PLAIN)
    await settle()
    assert len(rig.vllm.everyone) == 34
    assert rig.engine.load() == Load(32, 40, 32)
    with pytest.raises(QueueFullError):
        rig.client.ask("too much", PLAIN)


async def test_more_than_may_wait_are_refused_unless_someone_less_urgent_makes_room(rig: Rig) -> None:
    for name in "ab":
        rig.client.ask(name, PLAIN)
    for name in "cd":
        rig.client.ask(name, PLAIN, Priority.BATCH)
    with pytest.raises(QueueFullError):
        rig.client.ask("batch", PLAIN, Priority.BATCH)
    rig.client.ask("urgent", PLAIN)
    assert rig.client.answers == {}  # never from within the call
    await settle()
    assert rig.client.answers["d"].finish is Finish.DISPLACED
    rig.vllm.make("1", 7, ended=Ended.LENGTH)
    await settle()
    assert rig.vllm.everyone[-1] == "5"  # the urgent one goes before the batch that came sooner
    rig.client.ask("urgent too", PLAIN)
    await settle()
    assert "c" not in rig.client.answers
    rig.client.ask("and again", PLAIN)
    await settle()
    assert rig.client.answers["c"].finish is Finish.DISPLACED
    with pytest.raises(QueueFullError):
        rig.client.ask("one too many", PLAIN)


async def test_a_request_that_waits_is_cancelled_without_vllm_hearing_of_it(rig: Rig) -> None:
    rig.client.ask("a", PLAIN)
    rig.client.ask("b", PLAIN)
    waits = rig.client.ask("c", PLAIN)
    await settle()
    rig.engine.cancel(waits)
    rig.engine.cancel(waits)
    await settle()
    assert rig.client.answers["c"] == GeneratedTokens([], Finish.CANCELLED, 2, 0)
    assert rig.vllm.aborted == []
    rig.vllm.make("1", 7, ended=Ended.LENGTH)
    await settle()
    assert rig.vllm.everyone == ["1", "2"]


async def test_a_request_that_runs_is_aborted_and_has_the_tokens_made_until_then(rig: Rig) -> None:
    runs = rig.client.ask("a", PLAIN)
    await settle()
    rig.vllm.make("1", 7, 8)
    rig.engine.cancel(runs)
    rig.engine.cancel(runs)
    await settle()
    assert rig.vllm.aborted == ["1"]
    assert rig.client.answers["a"].finish is Finish.CANCELLED
    assert rig.client.answers["a"].tokens == [7, 8]
    rig.engine.cancel(runs)
    rig.engine.cancel(999)
    assert rig.engine.load().running == 0


async def test_one_that_is_cancelled_before_vllm_has_it_never_gets_there(rig: Rig) -> None:
    rig.engine.cancel(rig.client.ask("a", PLAIN))
    await settle()
    assert rig.client.answers["a"].finish is Finish.CANCELLED
    assert rig.vllm.everyone == rig.vllm.aborted == []


async def test_an_end_that_comes_with_the_cancellation_counts_once(rig: Rig) -> None:
    runs = rig.client.ask("a", STREAMED)
    await settle()
    rig.vllm.make("1", 7, ended=Ended.LENGTH)
    rig.engine.cancel(runs)
    await settle()
    assert rig.client.answers["a"].finish is Finish.CANCELLED
    assert rig.client.streamed["a"] == []
    assert rig.engine.load().running == 0


async def test_deadlines_end_those_that_wait_and_those_that_run(rig: Rig) -> None:
    now = asyncio.get_running_loop().time()
    rig.client.ask("runs", PLAIN, deadline=now)
    rig.client.ask("lasts", PLAIN, deadline=now + 3600)
    rig.client.ask("waits", PLAIN, deadline=now)
    await asyncio.sleep(0.01)
    await settle()
    assert {name: answer.finish for name, answer in rig.client.answers.items()} == {
        "runs": Finish.DEADLINE,
        "waits": Finish.DEADLINE,
    }
    await settle()
    assert (rig.engine.load().running, rig.engine.load().queued) == (1, 0)


async def test_a_request_that_vllm_cannot_answer_fails_alone(rig: Rig) -> None:
    rig.client.ask("a", PLAIN)
    rig.client.ask("b", PLAIN)
    await settle()
    rig.vllm.fail("1", ValueError("what vLLM says"))
    rig.vllm.make("2", 7, ended=Ended.LENGTH)
    await settle()
    assert [rig.client.answers[name].finish for name in "ab"] == [Finish.FAILED, Finish.LENGTH]


async def test_an_abort_that_nobody_asked_for_is_a_failure(rig: Rig) -> None:
    rig.client.ask("a", PLAIN)
    await settle()
    rig.vllm.make("1", 7, ended=Ended.ABORT)
    await settle()
    assert rig.client.answers["a"].finish is Finish.FAILED


@pytest.mark.parametrize("busy", [True, False])
async def test_a_dead_core_breaks_the_engine_whether_or_not_anyone_waits(rig: Rig, busy: bool) -> None:
    if busy:
        rig.client.ask("a", PLAIN)
    watching = asyncio.create_task(rig.engine.run(float))
    await settle()
    rig.vllm.die()
    with pytest.raises(CoreLostError):
        await asyncio.wait_for(watching, 10)
    assert rig.client.answers == {}


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (GenerateTokens([], 8, []), EmptyPromptError),
        (GenerateTokens([1] * 32, 8, []), PromptTooLongError),
        (GenerateTokens([50], 8, []), UnknownTokenError),
        (GenerateTokens([1], 8, [], sampling=Sampling(temperature=-1.0)), InvalidSamplingError),
        (GenerateTokens([1], 8, [], sampling=Sampling(temperature=1.0, min_p=0.1)), InvalidSamplingError),
    ],
)
async def test_what_cannot_be_served_is_refused_before_it_takes_a_place(
    rig: Rig, request_: GenerateTokens, error: type[Exception]
) -> None:
    with pytest.raises(error):
        rig.client.ask("a", request_)
    assert rig.engine.load() == Load(0, 0, 2)


async def test_a_newcomer_is_told_how_long_it_would_take_by_how_long_others_took(rig: Rig) -> None:
    assert rig.engine.outlook(Priority.INTERACTIVE) == 0.0
    rig.client.ask("a", PLAIN)
    await settle()
    await asyncio.sleep(0.01)
    rig.vllm.make("1", 7, ended=Ended.LENGTH)
    await settle()
    for name in "bcd":
        rig.client.ask(name, PLAIN, Priority.BATCH)
    await settle()
    batch, interactive = rig.engine.outlook(Priority.BATCH), rig.engine.outlook(Priority.INTERACTIVE)
    assert batch > interactive >= 0.01


async def test_steps_are_timed_and_silence_grows_only_while_there_is_something_to_do(rig: Rig) -> None:
    steps: list[float] = []
    watching = asyncio.create_task(rig.engine.run(steps.append))
    await settle()
    assert rig.engine.step_age() == 0.0
    rig.client.ask("a", PLAIN)
    await asyncio.sleep(0.02)
    assert rig.engine.step_age() >= 0.02
    rig.vllm.make("1", 7)
    assert len(steps) == 1
    assert steps[0] >= 0.02
    assert rig.engine.load().step_ms == pytest.approx(1000 * steps[0])
    assert rig.engine.step_age() < steps[0]
    rig.vllm.make("1", 7, ended=Ended.LENGTH)
    await settle()
    assert rig.engine.step_age() == 0.0
    watching.cancel()


async def test_silence_adds_up_over_requests_that_ended_at_their_deadlines(rig: Rig) -> None:
    loop = asyncio.get_running_loop()
    for name in "abc":
        rig.client.ask(name, PLAIN, deadline=loop.time() + 0.02)
        await asyncio.sleep(0.03)
        await settle()
        assert rig.engine.load().running == 0
        assert rig.engine.step_age() == 0.0
    rig.client.ask("d", PLAIN)
    await settle()
    assert rig.engine.step_age() >= 0.05
    rig.vllm.make("4", 7)
    assert rig.engine.step_age() < 0.02


async def test_closing_ends_vllm_within_the_time_given(rig: Rig) -> None:
    rig.client.ask("a", PLAIN)
    await settle()
    assert rig.engine.close(3.0)
    assert rig.vllm.closed == 3.0
