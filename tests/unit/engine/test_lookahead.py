"""An engine that looks ahead runs the same steps, and answers alike, as one that waits for each step's results."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import Finish, GeneratedTokens, GenerateTokens, Sampling
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import CompiledEngine, NativeEngine
from copydesk.inference.engine.native.null_runner import NullRunner
from tests.unit.engine import engine_owner
from tests.unit.engine.beside import Beside
from tests.unit.engine.scripts import (
    LATER,
    VOCABULARY,
    Action,
    Cancel,
    Played,
    Recording,
    Step,
    Submit,
    actions,
    follows,
    shapes,
)

SIZES = {
    "vocabulary": VOCABULARY,
    "slots": 3,
    "queue": 50,
    "context": 60,
    "prefill_tokens": 200,
    "draft_tokens": 0,
}


class Ahead(Played):
    """A compiled engine over a device beside it."""

    def __init__(self, model: Recording | None = None, **sizes: Any) -> None:
        model = model or Recording()
        options = SIZES | sizes
        self.device = Beside(model, options["vocabulary"])
        super().__init__(CompiledEngine(load_library(), self.device, **options), model)
        self.now = 0.0

    def ask(self, prompt: list[int], max_tokens: int = 4, **more: Any) -> int:
        patience = more.pop("deadline", LATER) - self.now
        priority = more.pop("priority", Priority.INTERACTIVE)
        request = GenerateTokens(prompt, max_tokens, more.pop("stop_ids", []), **more)
        assert self.submit(Submit(request, priority, patience), self.now)
        return len(self.numbers) - 1

    def step(self) -> bool:
        self.now += 1
        return self.engine.step(self.now)

    def drain(self) -> None:
        while self.step():
            pass
        assert self.device.under_way == 0

    def close(self) -> None:
        assert isinstance(self.engine, CompiledEngine)
        self.engine.close()


def in_python(sizes: dict[str, Any], model: Recording | None = None) -> Played:
    model = model or Recording()
    return Played(NativeEngine(model, **SIZES | sizes), model)


def without_stops(action: Action) -> Action:
    if not isinstance(action, Submit):
        return action
    return Submit(msgspec.structs.replace(action.request, stop_ids=[]), action.priority, action.patience)


def greedy(tokens: Sequence[int], count: int) -> list[int]:
    text = list(tokens)
    for _ in range(count):
        text.append(follows(text))
    return text[len(tokens) :]


@settings(max_examples=200, deadline=None)
@given(script=actions, sizes=shapes)
def test_without_stop_tokens_every_run_of_every_step_is_that_of_the_engine_that_waits(
    script: list[Action], sizes: dict[str, Any]
) -> None:
    """Cancellations, deadlines, displaced and refused requests included: all but what answers, one step later."""
    waits, ahead = in_python(sizes), Ahead(**sizes)
    now, more = 0.0, True
    for action in [*map(without_stops, script), Step(), Step()]:
        match action:
            case Submit():
                assert waits.submit(action, now + 1) == ahead.submit(action, now + 1)
            case Cancel():
                waits.cancel(action.back)
                ahead.cancel(action.back)
            case Step():
                now += 1
                more = waits.engine.step(now)
                assert ahead.engine.step(now) or not more
        assert_behind(ahead, waits)
    while more:
        now += 1
        more = waits.engine.step(now)
        assert ahead.engine.step(now) or not more
        assert_behind(ahead, waits)
    ahead.now = now
    ahead.drain()
    assert ahead.seen() == waits.seen()
    ahead.close()


def assert_behind(ahead: Played, waits: Played) -> None:
    assert ahead.model.steps == waits.model.steps
    assert ahead.answers.items() <= waits.answers.items()
    for index, tokens in ahead.streamed.items():
        assert waits.streamed[index][: len(tokens)] == tokens
    ours, theirs = ahead.engine.load(), waits.engine.load()
    assert (ours.running, ours.queued) == (theirs.running, theirs.queued)


patient = actions.map(
    lambda script: [
        Submit(action.request, action.priority, LATER) if isinstance(action, Submit) else action
        for action in script
        if not isinstance(action, Cancel)
    ]
)


@settings(max_examples=100, deadline=None)
@given(script=patient, sizes=shapes)
def test_stop_tokens_change_no_answer(script: list[Action], sizes: dict[str, Any]) -> None:
    """Nor how many passes and drafts an answer took, where these do not depend on who else is there."""
    sizes = sizes | {"queue": 50}
    waits, ahead = in_python(sizes), Ahead(**sizes)
    for played in (waits, ahead):
        for number, action in enumerate(script):
            if isinstance(action, Submit):
                assert played.submit(action, 0.0)
            elif isinstance(action, Step):
                played.engine.step(number)
        while played.engine.step(len(script)):
            pass
    alone = sizes["slots"] == 1 or (sizes["draft_tokens"] == 0 and sizes["prefill_tokens"] == 200)
    whole = (lambda answer: answer) if alone else without_counts
    assert {i: whole(answer) for i, answer in ahead.answers.items()} == {
        i: whole(answer) for i, answer in waits.answers.items()
    }
    assert ahead.streamed == waits.streamed
    ahead.close()


def without_counts(answer: GeneratedTokens) -> GeneratedTokens:
    return msgspec.structs.replace(answer, passes=0, drafted=0, accepted=0)


@settings(max_examples=100, deadline=None)
@given(script=actions, sizes=shapes)
def test_whatever_happens_all_are_answered_once_with_what_the_model_says(
    script: list[Action], sizes: dict[str, Any]
) -> None:
    ahead = Ahead(**sizes)
    requests: list[GenerateTokens] = []
    for action in script:
        match action:
            case Submit():
                if ahead.submit(action, ahead.now + 1):
                    requests.append(action.request)
            case Cancel():
                ahead.cancel(action.back)
            case Step():
                ahead.step()
    ahead.drain()
    assert set(ahead.answers) == set(range(len(requests)))
    for index, request in enumerate(requests):
        answer = ahead.answers[index]
        if request.stream:
            assert ahead.streamed.get(index, []) == answer.tokens
        if not request.sampling.is_greedy:
            continue
        assert answer.tokens == greedy(request.prompt, len(answer.tokens))
        assert not set(answer.tokens) & set(request.stop_ids)
        if answer.finish is Finish.STOP:
            assert follows([*request.prompt, *answer.tokens]) == answer.stop_id
    load = ahead.engine.load()
    assert (load.running, load.queued) == (0, 0)
    assert ahead.engine.outlook(Priority.BATCH) == 0.0
    ahead.close()


def test_steps_overlap_wherever_all_decode_and_only_there() -> None:
    ahead = Ahead()
    ahead.ask([1, 2], 10)
    ahead.ask([3], 10)
    ahead.drain()
    assert (ahead.device.most, ahead.device.unknown) == (2, 18)
    waits = Ahead(asynchronous=False)
    waits.ask([1, 2], 10)
    waits.drain()
    assert (waits.device.most, waits.device.unknown) == (1, 0)


@pytest.mark.parametrize(
    "needs_results",
    [
        pytest.param({"sampling": Sampling(temperature=0.5)}, id="sampled"),
        pytest.param({"sampling": Sampling(presence_penalty=1.0)}, id="penalties"),
        pytest.param({"source": [4] * 9}, id="drafts from a source"),
    ],
)
def test_who_needs_results_makes_all_wait_until_it_has_ended(needs_results: dict[str, Any]) -> None:
    ahead = Ahead(draft_tokens=40, slots=2)
    ahead.ask([5, 5, 5], 6, **needs_results)
    alone = [16, 0, 1]
    ahead.ask(alone, 1)
    while 0 not in ahead.answers:
        ahead.step()
        assert (ahead.device.most, ahead.device.unknown) == (1, 0)
    ahead.drain()


@pytest.mark.parametrize(("period", "drafts"), [(510, True), (511, True), (512, False), (600, False)])
def test_who_has_no_source_needs_results_only_where_its_last_token_came_up_before(
    period: int, drafts: bool
) -> None:
    """Drafts look for an echo in the last 512 tokens, of two at the least."""

    def cycle(tokens: Sequence[int]) -> int:
        return (tokens[-1] + 1) % period

    sizes = {"vocabulary": period, "context": 1000, "prefill_tokens": 1000, "draft_tokens": 20, "slots": 1}
    waits, ahead = in_python(sizes, Recording(cycle)), Ahead(Recording(cycle), **sizes)
    request = GenerateTokens([*range(period - 4)], 40, [])
    for played in (waits, ahead):
        assert played.submit(Submit(request, Priority.INTERACTIVE, LATER), 0.0)
        while played.engine.step(0.0):
            pass
    assert ahead.seen() == waits.seen()
    assert (ahead.answers[0].accepted > 0) == drafts
    assert (ahead.device.unknown == 39) == (not drafts)
    assert ahead.device.unknown > 0


def test_drafts_come_back_when_load_falls() -> None:
    answer = greedy([7, 8], 50)
    ahead = Ahead(slots=4, draft_tokens=4)
    drafts = ahead.ask([7, 8], 50, source=answer)
    others = [ahead.ask([n], 20) for n in range(1, 4)]
    while others[0] not in ahead.answers:
        ahead.step()
    crowded = ahead.device.unknown
    assert crowded > 60
    ahead.drain()
    assert ahead.device.unknown <= crowded + 8
    assert ahead.answers[drafts].tokens == answer
    assert ahead.answers[drafts].accepted > 15


def test_a_stop_token_costs_one_run_whose_slot_is_not_given_away_before() -> None:
    ahead = Ahead(slots=1)
    tokens = greedy([2], 3)
    stops = ahead.ask([2], 40, stop_ids=[tokens[2]])
    follower = ahead.ask([9, 9], 2)
    ahead.drain()
    steps = [step[0] for step in ahead.model.steps]
    assert [start for _, start, *_ in steps] == [0, 1, 2, 3, 0, 2]  # the fourth is in vain
    assert ahead.answers[stops].tokens == tokens[:2]
    assert (ahead.answers[stops].finish, ahead.answers[stops].passes) == (Finish.STOP, 3)
    assert ahead.answers[follower].tokens == greedy([9, 9], 2)


@pytest.mark.parametrize(("prompt", "max_tokens", "made"), [(2, 1, 1), (2, 3, 3), (59, 9, 1), (50, 40, 10)])
def test_no_run_goes_past_the_last_token_or_the_context(prompt: int, max_tokens: int, made: int) -> None:
    ahead = Ahead(slots=1)
    first, second = ahead.ask([1] * prompt, max_tokens), ahead.ask([2] * prompt, max_tokens)
    ahead.drain()
    assert len(ahead.model.steps) == 2 * made
    for index, token in ((first, 1), (second, 2)):
        answer = ahead.answers[index]
        assert answer.tokens == greedy([token] * prompt, made)
        assert (answer.finish, answer.passes) == (Finish.LENGTH, made)


def test_a_slot_changes_hands_between_two_steps_under_way() -> None:
    ahead = Ahead(slots=1)
    for n in range(5):
        ahead.ask([n, n], 1)
    ahead.drain()
    assert ahead.device.most == 2
    assert [ahead.answers[n].tokens for n in range(5)] == [greedy([n, n], 1) for n in range(5)]
    assert len(ahead.model.steps) == 5


@pytest.mark.parametrize("slots", [1, 2])
def test_who_is_cancelled_under_way_keeps_what_that_step_made(slots: int) -> None:
    ahead = Ahead(slots=slots)
    cancelled, other = ahead.ask([3], 30), ahead.ask([4], 5)
    for _ in range(3):
        ahead.step()
    ahead.engine.cancel(ahead.numbers[cancelled])
    ahead.engine.cancel(ahead.numbers[cancelled])
    ahead.drain()
    answer = ahead.answers[cancelled]
    assert (answer.finish, answer.tokens, answer.passes) == (Finish.CANCELLED, greedy([3], 3), 3)
    assert ahead.answers[other].tokens == greedy([4], 5)


def test_who_stops_in_the_step_it_is_cancelled_behind_has_stopped() -> None:
    ahead = Ahead()
    stops = ahead.ask([3], 30, stop_ids=[follows([3])])
    ahead.step()
    ahead.engine.cancel(ahead.numbers[stops])
    ahead.drain()
    assert (ahead.answers[stops].finish, ahead.answers[stops].completion_tokens) == (Finish.STOP, 1)


def test_a_deadline_that_passes_under_way_ends_a_request_with_what_that_step_made() -> None:
    ahead = Ahead()
    late = ahead.ask([3], 30, deadline=3.5)
    ahead.drain()
    answer = ahead.answers[late]
    assert (answer.finish, answer.tokens) == (Finish.DEADLINE, greedy([3], 3))
    assert len(ahead.model.steps) == 3


def test_an_urgent_request_displaces_one_that_waits_behind_steps_under_way() -> None:
    ahead = Ahead(slots=1, queue=1)
    runs, waits = ahead.ask([1], 9), ahead.ask([2], 3, priority=Priority.BATCH)
    ahead.step()
    ahead.step()
    urgent = ahead.ask([3], 3)
    ahead.drain()
    assert ahead.answers[waits].finish is Finish.DISPLACED
    assert ahead.answers[waits].tokens == []
    for index, count in ((runs, 9), (urgent, 3)):
        assert ahead.answers[index].tokens == greedy([index + 1], count)


def test_streams_keep_their_order_and_end_before_the_answer() -> None:
    ahead = Ahead(slots=2)
    streams = [ahead.ask([n], 9, stream=True) for n in range(3)]
    ahead.drain()
    assert [ahead.streamed[index] for index in streams] == [greedy([n], 9) for n in range(3)]


def test_a_step_whose_runs_have_all_ended_is_still_finished() -> None:
    ahead = Ahead()
    stop = greedy([5], 2)[1]
    ahead.ask([5], 9, stop_ids=[stop])
    while ahead.step():
        pass
    assert ahead.device.under_way == 0
    assert ahead.engine.load().running == 0
    assert len(ahead.model.steps) == 3


def test_an_engine_that_is_closed_lets_the_device_be_done_with_what_is_under_way() -> None:
    ahead = Ahead()
    ahead.ask([1], 9)
    ahead.step()
    ahead.step()
    assert ahead.device.under_way == 1
    ahead.close()
    assert ahead.device.under_way == 0
    assert ahead.answers == {}


def test_a_halt_completes_what_is_under_way() -> None:
    device = Beside(NullRunner(0.0, engine_owner.VOCABULARY), engine_owner.VOCABULARY)
    with engine_owner.running(device) as owner:
        index = owner.submit(GenerateTokens([1], 90_000, [], stream=True))
        owner.until(lambda: len(owner.streamed.get(index, ())) > 20)
    assert owner.failure is None
    assert (device.most, device.under_way) == (2, 0)


class Failing(Beside):
    """Fails at a call; counts them."""

    def __init__(self, *, begin: int = 0, finish: int = 0) -> None:
        super().__init__(Recording(), VOCABULARY)
        self.at = {"begin": begin, "finish": finish}
        self.calls = {"begin": 0, "finish": 0}

    def begin(self, step: Any) -> None:
        self.count("begin")
        super().begin(step)

    def finish(self) -> None:
        super().finish()
        self.count("finish")

    def count(self, what: str) -> None:
        self.calls[what] += 1
        if self.calls[what] == self.at[what]:
            raise ConnectionError(what)


def step_for_ever(engine: CompiledEngine) -> None:
    while engine.step(0.0):
        pass


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("call", ["begin", "finish"])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_device_that_fails_breaks_the_engine_and_is_left_with_nothing_under_way(
    asynchronous: bool, call: str, at: int
) -> None:
    device = Failing(**{call: at})
    engine = CompiledEngine(load_library(), device, **SIZES, asynchronous=asynchronous)
    played = Played(engine, Recording())
    request = GenerateTokens([1], 9, [], stream=True)
    assert played.submit(Submit(request, Priority.INTERACTIVE, LATER), 0.0)
    with pytest.raises(ConnectionError, match=call):
        step_for_ever(engine)
    assert device.under_way == 0
    engine.deliver()
    assert played.streamed.get(0, []) == greedy([1], at - 1)
    assert played.answers == {}
    assert engine.step_age() == 0.0
    engine.close()
    begun = device.calls["begin"] - (call == "begin")
    assert device.calls["finish"] == begun
