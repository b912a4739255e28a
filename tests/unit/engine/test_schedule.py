import math

from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import Finish, GenerateTokens
from copydesk.inference.engine.native.generation import Generation
from copydesk.inference.engine.native.schedule import admissions, overdue, plan


def generation(
    number: int,
    *,
    prompt: int = 4,
    cached: int = 0,
    tokens: tuple[int, ...] = (),
    priority: Priority = Priority.INTERACTIVE,
    deadline: float = math.inf,
) -> Generation:
    request = GenerateTokens(prompt=list(range(prompt)), max_tokens=8, stop_ids=[9])
    made = Generation(number, request, deadline, priority, lambda _: None)
    made.slot, made.cached, made.tokens = number, cached, list(tokens)
    return made


def ids(generations: list[Generation]) -> list[int]:
    return [g.id for g in generations]


def test_interactive_requests_are_admitted_before_batch_and_in_order() -> None:
    waiting = [
        generation(1, priority=Priority.BATCH),
        generation(4),
        generation(2),
        generation(3, priority=Priority.BATCH),
    ]
    assert ids(admissions(waiting, 3)) == [2, 4, 1]
    assert ids(admissions(waiting, 9)) == [2, 4, 1, 3]
    assert admissions(waiting, 0) == []


def test_a_deadline_is_over_at_its_very_moment() -> None:
    assert ids(overdue([generation(1, deadline=4.9), generation(2, deadline=5.0), generation(3)], 5.0)) == [1, 2]
    assert overdue([generation(2, deadline=5.1)], 5.0) == []


def test_a_whole_prompt_goes_in_at_once_when_it_fits() -> None:
    (run,) = plan([generation(1, prompt=4)], prefill_tokens=4)
    assert (run.slot, run.start, run.tokens, run.samples) == (1, 0, [0, 1, 2, 3], True)


def test_a_long_prompt_is_cut_and_samples_only_at_its_end() -> None:
    (first,) = plan([generation(1, prompt=7)], prefill_tokens=4)
    assert (first.start, first.tokens, first.samples) == (0, [0, 1, 2, 3], False)
    (second,) = plan([generation(1, prompt=7, cached=4)], prefill_tokens=4)
    assert (second.start, second.tokens, second.samples) == (4, [4, 5, 6], True)


def test_who_decodes_is_never_kept_waiting_by_prompts() -> None:
    decoding = [generation(i, cached=4 + i, tokens=tuple(range(i + 1))) for i in range(1, 6)]
    runs = plan([generation(9, prompt=100), *decoding], prefill_tokens=10)
    by_slot = {run.slot: run for run in runs}
    assert len(by_slot[9].tokens) == 10
    for g in decoding:
        assert (by_slot[g.slot].start, by_slot[g.slot].tokens) == (g.cached, [g.tokens[-1]])
        assert by_slot[g.slot].samples


def test_prompts_go_in_by_turn_within_the_budget() -> None:
    batch = generation(1, prompt=6, priority=Priority.BATCH)
    runs = plan([batch, generation(3, prompt=6), generation(2, prompt=6)], prefill_tokens=9)
    assert [(run.slot, len(run.tokens), run.samples) for run in runs] == [(2, 6, True), (3, 3, False)]


@given(prompts=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 49)), max_size=20), budget=st.integers(1, 64))
def test_no_step_takes_more_prompt_tokens_than_it_may(prompts: list[tuple[int, int]], budget: int) -> None:
    running = [generation(i, prompt=n, cached=min(c, n - 1)) for i, (n, c) in enumerate(prompts)]
    runs = plan(running, budget)
    assert sum(len(run.tokens) for run in runs) == min(budget, sum(g.pending for g in running))
    assert all(run.tokens for run in runs)


def test_a_generation_ends_at_a_stop_token_its_limit_or_the_context() -> None:
    assert generation(1).accept(9, context=100) is Finish.STOP
    assert generation(1).accept(5, context=100) is None
    assert generation(1, tokens=(0,) * 7).accept(5, context=100) is Finish.LENGTH
    assert generation(1, tokens=(0,) * 7).accept(9, context=100) is Finish.STOP
    assert generation(1, prompt=4, tokens=(0,)).accept(5, context=6) is Finish.LENGTH
