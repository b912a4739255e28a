"""The native engine with the real default model, judged by transformers on the same directory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from copydesk.inference.correction import Corrector
from copydesk.inference.engine import Finish, GeneratedTokens, GenerateTokens
from copydesk.inference.engine.native import DRAFT_TOKENS, NativeOptions, Precision, open_engine
from tests.fixtures.default_model import default_model_or_skip
from tests.fixtures.sentences import sentences
from tests.unit.engine.reference import assert_greedy, scores_along, serve_at_random

SENTENCES = """\
She go to school every day.
He don't like apples, he like orange.
I has a dog.
Their going to the beach tomorow.
Me and him was late for the meeting.
The weather is nice today.
There is many reason why peoples move to big city.
I look forward to hear from you soon.
If I was you, I will not do that.
She told me that she is coming yesterday.
The childs are playing in garden.
We discussed about the plan for two hours.
Although it was raining, but we went out.
He is more taller than his brother.
I have seen that movie last week.
This is the book which I told you about it.
Can you explain me the problem?
The informations you gave me was very usefull.
The committee has approved the budget for next year.
My sister live in London since 2015.
He suggested me to take the train.
It depends of the price.
I am agree with you.
She is married with a doctor.
How long time did it take?
The train arrived on time, and everybody got off.
Yesterday I go to the market and buyed some fruits.
There was a lot of peoples at the party.
Neither of the answers are correct.
I am used to get up early.
He made me to wait for an hour.
Please return the form before Friday.
You should to see a doctor.
It is raining since this morning.
Every students must bring their own lunch.
The number of cars have increased.
I didn't knew that he was ill.
What means this word?
She has much friends in the city.
The news are not good.
Our flight was delayed by three hours because of fog.
Despite of the cold, they swam in the lake.
He gave to me a present.
I would like a information about the course.
The house, that we bought last year, need a new roof.
We was hoping that you could of helped us.
It's colour has changed over the years.
Who's keys are these?
The effect of this medicine depends on the dose.
Its a pitty that you cant come.
He works hardly every day to support his family.
Since ten years I am living here.
Politics are a difficult subject to teach.
She speaks English very good.
I have less books than you.
Let's us begin with the first question.
The company have decided to close two of it's shops.
"Where do you live?" he ask to me.
1,234 persons was counted on 3rd of May, 2021.
Yes.""".splitlines()


@pytest.fixture(scope="module")
def directory() -> Path:
    return default_model_or_skip()


@pytest.fixture(scope="module")
def model(directory: Path) -> Any:
    loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return loaded.eval()


@pytest.fixture(scope="module")
def requests(directory: Path) -> list[GenerateTokens]:
    corrector = Corrector.load(directory)
    return [corrector.encode(sentence).request() for sentence in SENTENCES]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine threads wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def answers(
    directory: Path, precision: Precision, requests: list[GenerateTokens], draft_tokens: int = DRAFT_TOKENS
) -> list[GeneratedTokens]:
    options = NativeOptions(precision=precision, slots=16, context=256, draft_tokens=draft_tokens)
    engine = open_engine(directory, options)
    delivered = serve_at_random(engine, requests, random.Random(60)).answers
    return [delivered[index] for index in range(len(requests))]


@pytest.fixture(scope="module")
def more_requests(directory: Path, requests: list[GenerateTokens]) -> list[GenerateTokens]:
    corrector = Corrector.load(directory)
    return requests + [corrector.encode(sentence).request() for sentence in sentences(40)]


@pytest.fixture(scope="module")
def drafted(directory: Path, more_requests: list[GenerateTokens]) -> list[GeneratedTokens]:
    """The answers in float32 with drafts."""
    return answers(directory, Precision.FLOAT32, more_requests)


@pytest.mark.slow
def test_float32_answers_equal_those_of_transformers_token_for_token(
    model: Any, requests: list[GenerateTokens], drafted: list[GeneratedTokens]
) -> None:
    made = drafted[: len(requests)]
    same = [assert_greedy(model, request, answer) for request, answer in zip(requests, made, strict=True)]
    assert sum(same) >= 50
    assert sum(answer.finish is Finish.STOP for answer in made) >= 50


@pytest.mark.slow
def test_drafts_change_no_float32_answer_and_save_most_passes(
    directory: Path, model: Any, more_requests: list[GenerateTokens], drafted: list[GeneratedTokens]
) -> None:
    asked = more_requests
    plain = answers(directory, Precision.FLOAT32, asked, draft_tokens=0)
    differing = [index for index in range(len(asked)) if plain[index].tokens != drafted[index].tokens]
    for index in differing:
        assert_greedy(model, asked[index], drafted[index])
    assert len(differing) <= 0.01 * len(asked)
    assert sum(answer.passes for answer in plain) == sum(answer.completion_tokens for answer in plain)
    assert sum(answer.passes for answer in drafted) < 0.5 * sum(answer.completion_tokens for answer in drafted)
    unchanged = [a for q, a in zip(asked, drafted, strict=True) if a.tokens == q.source]
    assert len(unchanged) > len(asked) // 5
    assert sum(answer.passes for answer in unchanged) < 2 * len(unchanged)


@pytest.mark.slow
def test_bfloat16_answers_choose_tokens_that_float32_scores_best_or_nearly_so(
    directory: Path, model: Any, requests: list[GenerateTokens]
) -> None:
    made = answers(directory, Precision.BFLOAT16, requests)
    differences = []
    for request, answer in zip(requests, made, strict=True):
        scores = scores_along(model, request, answer)[: answer.completion_tokens]
        chosen = [*answer.tokens, *request.stop_ids[:1]][: answer.completion_tokens]
        differences += (scores.max(-1).values - scores[torch.arange(len(chosen)), chosen]).tolist()
    assert max(differences) < 0.5
    assert sum(difference > 0 for difference in differences) < 0.02 * len(differences)
