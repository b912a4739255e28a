"""The compiled engine decides what the one in Python decides, step by step, and what it answers alike."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import GenerateTokens
from copydesk.inference.engine.compiled import load_library
from copydesk.inference.engine.native import CompiledEngine, NativeEngine
from copydesk.inference.engine.native.devices import RunnerDevice
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


def both(sizes: dict[str, Any]) -> tuple[Played, Played]:
    first, second = Recording(), Recording()
    python = NativeEngine(first, vocabulary=VOCABULARY, **sizes)
    compiled = CompiledEngine(
        load_library(), RunnerDevice(second, VOCABULARY), vocabulary=VOCABULARY, **sizes, asynchronous=False
    )
    return Played(python, first), Played(compiled, second)


@settings(max_examples=250, deadline=None)
@given(script=actions, sizes=shapes)
def test_both_engines_run_the_same_tokens_in_the_same_order_and_answer_alike(
    script: list[Action], sizes: dict[str, int]
) -> None:
    python, compiled = both(sizes)
    now, more = 0.0, True
    for action in [*script, *[Step()] * 2]:
        match action:
            case Submit():
                assert python.submit(action, now + 1) == compiled.submit(action, now + 1)
            case Cancel():
                python.cancel(action.back)
                compiled.cancel(action.back)
            case Step():
                now += 1
                more = python.engine.step(now)
                assert compiled.engine.step(now) == more
        assert compiled.seen() == python.seen()
    while more:
        now += 1
        more = python.engine.step(now)
        assert compiled.engine.step(now) == more
        assert compiled.seen() == python.seen()
    assert set(python.answers) == set(range(len(python.numbers)))


def long_request(rng: random.Random) -> GenerateTokens:
    """Room for long drafts; few different tokens let many repetitions compete, edits of all sizes mislead."""
    letters = rng.choice((2, 3, VOCABULARY))
    prompt = [rng.randrange(letters) for _ in range(rng.randint(1, 60))]
    text = list(prompt)
    for _ in range(rng.randint(0, 70)):
        text.append(follows(text))
    source = text[len(prompt) :]
    for _ in range(rng.randint(0, 4)):
        place = rng.randint(0, len(source))
        put = [rng.randrange(VOCABULARY) for _ in range(rng.choice((0, 1, 2, 10, 11, 12)))]
        source[place : place + rng.choice((0, 1, 2, 10, 11, 12))] = put
    return GenerateTokens(prompt, rng.randint(1, 100), [], source=source if rng.random() < 0.6 else [])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), slots=st.integers(1, 3), draft_tokens=st.sampled_from([20, 100, 300, 700]))
def test_both_engines_draft_the_same_in_long_answers(seed: int, slots: int, draft_tokens: int) -> None:
    rng = random.Random(seed)
    python, compiled = both(
        {"slots": slots, "queue": 9, "context": 160, "prefill_tokens": 50, "draft_tokens": draft_tokens}
    )
    for _ in range(6):
        submission = Submit(long_request(rng), Priority.INTERACTIVE, LATER)
        assert python.submit(submission, 0.0)
        assert compiled.submit(submission, 0.0)
    while python.engine.step(0.0):
        compiled.engine.step(0.0)
    compiled.engine.step(0.0)
    assert compiled.seen() == python.seen()


def test_the_property_meets_what_it_is_about() -> None:
    """Without it a model whose drafts are never right would let every engine pass."""
    python, compiled = both(
        {"slots": 2, "queue": 9, "context": 200, "prefill_tokens": 12, "draft_tokens": 40},
    )
    prompt = [5, 1, 4]
    text = list(prompt)
    for _ in range(60):
        text.append(follows(text))
    answer = text[3:]
    repeats = GenerateTokens(prompt, 60, [])
    edited = GenerateTokens(prompt, 60, [], source=[*answer[:20], answer[20] + 1, *answer[21:]])
    for played in (python, compiled):
        for request in (repeats, edited):
            assert played.submit(Submit(request, Priority.INTERACTIVE, LATER), 0.0)
        while played.engine.step(1.0):
            pass
        assert [played.answers[index].tokens for index in (0, 1)] == [answer, answer]
        repeated, corrected = played.answers[0], played.answers[1]
        assert repeated.accepted > 0
        assert 0 < corrected.accepted < corrected.drafted
