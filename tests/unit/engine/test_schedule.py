import math

from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import Finish, GenerateTokens
from copydesk.inference.engine.native.generation import Generation, Limits
from copydesk.inference.engine.native.schedule import admissions, overdue, plan, share


def generation(
    number: int,
    *,
    prompt: int = 4,
    cached: int = 0,
    tokens: tuple[int, ...] = (),
    priority: Priority = Priority.INTERACTIVE,
    deadline: float = math.inf,
    context: int = 100,
    source: tuple[int, ...] = (),
) -> Generation:
    request = GenerateTokens(prompt=list(range(prompt)), max_tokens=8, stop_ids=[9], source=list(source))
    made = Generation(number, request, deadline, priority, lambda _: None, Limits(context, vocabulary=20))
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
    assert ids(admissions(waiting, 3, 1000)) == [2, 4, 1]
    assert ids(admissions(waiting, 9, 1000)) == [2, 4, 1, 3]
    assert admissions(waiting, 0, 1000) == []


def test_a_request_whose_room_in_the_cache_is_taken_waits_and_so_do_those_behind_it() -> None:
    waiting = [generation(1), generation(2, prompt=40), generation(3)]  # 12, 48 and 12 tokens, in pages of 32
    assert ids(admissions(waiting, 9, 128)) == [1, 2, 3]
    assert ids(admissions(waiting, 9, 127)) == [1, 2]
    assert ids(admissions(waiting, 9, 95)) == [1]
    assert admissions(waiting, 9, 31) == []


def test_a_deadline_is_over_at_its_very_moment() -> None:
    assert ids(overdue([generation(1, deadline=4.9), generation(2, deadline=5.0), generation(3)], 5.0)) == [1, 2]
    assert overdue([generation(2, deadline=5.1)], 5.0) == []


def test_a_whole_prompt_goes_in_at_once_when_it_fits() -> None:
    (run,) = plan([generation(1, prompt=4)], prefill_tokens=4, draft_tokens=0)
    assert (run.slot, run.start, run.tokens, run.samples) == (1, 0, [0, 1, 2, 3], 1)


def test_a_long_prompt_is_cut_and_samples_only_at_its_end() -> None:
    (first,) = plan([generation(1, prompt=7)], prefill_tokens=4, draft_tokens=0)
    assert (first.start, first.tokens, first.samples) == (0, [0, 1, 2, 3], 0)
    (second,) = plan([generation(1, prompt=7, cached=4)], prefill_tokens=4, draft_tokens=0)
    assert (second.start, second.tokens, second.samples) == (4, [4, 5, 6], 1)


def test_who_decodes_is_never_kept_waiting_by_prompts() -> None:
    decoding = [generation(i, cached=4 + i, tokens=tuple(range(i + 1))) for i in range(1, 6)]
    runs = plan([generation(9, prompt=100), *decoding], prefill_tokens=10, draft_tokens=0)
    by_slot = {run.slot: run for run in runs}
    assert len(by_slot[9].tokens) == 10
    for g in decoding:
        assert (by_slot[g.slot].start, by_slot[g.slot].tokens) == (g.cached, [g.tokens[-1]])
        assert by_slot[g.slot].samples == 1


def test_prompts_go_in_by_turn_within_the_budget() -> None:
    batch = generation(1, prompt=6, priority=Priority.BATCH)
    runs = plan([batch, generation(3, prompt=6), generation(2, prompt=6)], prefill_tokens=9, draft_tokens=0)
    assert [(run.slot, len(run.tokens), run.samples) for run in runs] == [(2, 6, 1), (3, 3, 0)]


@given(prompts=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 49)), max_size=20), budget=st.integers(1, 64))
def test_no_step_takes_more_prompt_tokens_than_it_may(prompts: list[tuple[int, int]], budget: int) -> None:
    running = [generation(i, prompt=n, cached=min(c, n - 1)) for i, (n, c) in enumerate(prompts)]
    runs = plan(running, budget, draft_tokens=0)
    assert sum(len(run.tokens) for run in runs) == min(budget, sum(g.pending for g in running))
    assert all(run.tokens for run in runs)


def ended_by(token: int, made: Generation) -> Finish | None:
    (run,) = plan([made], prefill_tokens=100, draft_tokens=0)
    return made.advance(run, [token])


def test_a_generation_ends_at_a_stop_token_its_limit_or_the_context() -> None:
    assert ended_by(9, generation(1)) is Finish.STOP
    assert ended_by(5, generation(1)) is None
    assert ended_by(5, generation(1, cached=10, tokens=(0,) * 7)) is Finish.LENGTH
    assert ended_by(9, generation(1, cached=10, tokens=(0,) * 7)) is Finish.STOP
    assert ended_by(5, generation(1, prompt=4, cached=4, tokens=(0,), context=6)) is Finish.LENGTH


def drafts(running: list[Generation], draft_tokens: int, prefill_tokens: int = 100) -> dict[int, list[int]]:
    return {run.slot: list(run.drafted) for run in plan(running, prefill_tokens, draft_tokens)}


def test_the_whole_source_is_drafted_behind_the_prompt() -> None:
    (run,) = plan([generation(1, source=(5, 6, 7))], prefill_tokens=100, draft_tokens=50)
    assert (run.start, run.tokens, run.samples) == (0, [0, 1, 2, 3, 5, 6, 7], 4)


def test_a_prompt_that_is_not_in_yet_gets_no_draft() -> None:
    (run,) = plan([generation(1, source=(5, 6, 7))], prefill_tokens=3, draft_tokens=50)
    assert (run.tokens, run.samples) == ([0, 1, 2], 0)


def test_drafts_share_what_those_who_decode_leave() -> None:
    running = [generation(i, cached=4, tokens=(1,), source=tuple(range(10, 15))) for i in (1, 2, 3)]
    running.append(generation(4, cached=4, tokens=(1,), source=(10, 11)))
    assert [len(draft) for draft in drafts(running, draft_tokens=4 + 12).values()] == [3, 3, 4, 2]
    assert [len(draft) for draft in drafts(running, draft_tokens=4).values()] == [0] * 4
    assert [len(draft) for draft in drafts(running, draft_tokens=0).values()] == [0] * 4


def test_a_draft_ends_before_a_stop_token_and_before_what_is_no_token() -> None:
    assert drafts([generation(1, source=(5, 9, 6))], 50) == {1: [5]}
    assert drafts([generation(1, source=(5, 6, 20, 7))], 50) == {1: [5, 6]}
    assert drafts([generation(1, source=(-1, 6))], 50) == {1: []}


def test_no_draft_goes_beyond_what_the_answer_may_have() -> None:
    long = (5,) * 50
    assert drafts([generation(1, source=long)], 90) == {1: [5] * 7}
    assert drafts([generation(1, cached=9, tokens=(1,) * 6, source=long)], 90) == {1: [5]}
    assert drafts([generation(1, cached=10, tokens=(1,) * 7, source=long)], 90) == {1: []}
    assert drafts([generation(1, source=long, context=7)], 90) == {1: [5] * 2}


def test_who_has_been_wrong_tries_less_the_busier_the_engine_is() -> None:
    def after_an_edit(number: int) -> Generation:
        made = generation(number, source=tuple(range(10, 20)) * 9)
        (run,) = plan([made], prefill_tokens=100, draft_tokens=100)
        assert made.advance(run, [3] * run.samples) is None
        return made

    sizes = [
        len(drafts([after_an_edit(i) for i in range(count)], draft_tokens=100)[0]) for count in (1, 4, 20, 60)
    ]
    assert sizes == [6, 3, 3, 0]


@given(st.lists(st.integers(0, 40), max_size=20), st.integers(0, 300))
def test_a_budget_is_shared_as_evenly_as_what_is_wanted_allows(wanted: list[int], budget: int) -> None:
    given = share(budget, wanted)
    assert all(0 <= got <= want for got, want in zip(given, wanted, strict=True))
    assert sum(given) == min(budget, sum(wanted))
    most = max(given, default=0)
    assert all(got == want or got >= most - 1 for got, want in zip(given, wanted, strict=True))
