import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.inference.engine import InvalidSamplingError, Sampling
from copydesk.inference.engine.native.sampling import choose, kept_weights, validate

SCORES = np.array([1.0, 3.0, 2.0, 0.0, -1.0], np.float32)
CHI_SQUARE_OF_4_AT_1_IN_10000 = 23.5

samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_p=st.sampled_from([0.1, 0.5, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 3, 50]),
    min_p=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 2**64 - 1),
    presence_penalty=st.sampled_from([-2.0, 0.0, 1.0]),
    frequency_penalty=st.sampled_from([-1.0, 0.0, 0.5]),
    repetition_penalty=st.sampled_from([0.5, 1.0, 1.3]),
)


def one(
    scores: np.ndarray, sampling: Sampling, *, prompt: Sequence[int] = (), generated: Sequence[int] = ()
) -> int:
    return choose(scores[np.newaxis], sampling, prompt=prompt, generated=generated)[0]


def draws(scores: np.ndarray, sampling: Sampling, count: int = 4000) -> np.ndarray:
    tokens = [one(scores, msgspec.structs.replace(sampling, seed=seed)) for seed in range(count)]
    return np.bincount(tokens, minlength=len(scores))


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores.astype(np.float64) - scores.max())
    probabilities: np.ndarray = weights / weights.sum()
    return probabilities


@dataclass(frozen=True)
class Model:
    """Scores that depend on all tokens before, as a model's do."""

    vocabulary: int
    seed: int

    def __call__(self, tokens: list[int]) -> np.ndarray:
        state = np.random.default_rng([self.seed, *tokens])
        return state.normal(0.0, 2.0, self.vocabulary).astype(np.float32)


def undrafted(model: Model, sampling: Sampling, prompt: list[int], count: int) -> list[int]:
    made: list[int] = []
    for _ in range(count):
        made.append(one(model([*prompt, *made]), sampling, prompt=prompt, generated=made))
    return made


class TestDrawing:
    @pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
    def test_tokens_are_drawn_as_often_as_their_probability_says(self, temperature: float) -> None:
        counts = draws(SCORES, Sampling(temperature=temperature))
        expected = softmax(SCORES / temperature) * counts.sum()
        assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE_OF_4_AT_1_IN_10000

    def test_draws_along_one_text_are_independent(self) -> None:
        sampling = Sampling(temperature=1.0, seed=11)
        tokens = [one(np.zeros(2, np.float32), sampling, generated=[0] * made) for made in range(2000)]
        pairs = np.bincount([2 * a + b for a, b in itertools.pairwise(tokens)], minlength=4)
        assert ((pairs - 500) ** 2 / 500).sum() < CHI_SQUARE_OF_4_AT_1_IN_10000

    def test_a_whole_vocabulary_is_drawn_from_in_proportion(self) -> None:
        scores = np.full(10_000, -50.0, np.float32)
        scores[[0, 255, 256, 5_000, 9_999]] = 1.0
        counts = draws(scores, Sampling(temperature=1.0))[[0, 255, 256, 5_000, 9_999]]
        assert counts.sum() == 4000
        assert ((counts - 800) ** 2 / 800).sum() < CHI_SQUARE_OF_4_AT_1_IN_10000

    def test_the_same_seed_draws_the_same(self) -> None:
        model, sampling = Model(50, 1), Sampling(temperature=1.5, seed=7)
        assert undrafted(model, sampling, [1], 30) == undrafted(model, sampling, [1], 30)

    def test_another_seed_draws_something_else(self) -> None:
        model = Model(50, 1)
        texts = {tuple(undrafted(model, Sampling(temperature=1.5, seed=seed), [1], 30)) for seed in range(20)}
        assert len(texts) == 20

    def test_seeds_of_any_size_are_taken(self) -> None:
        for seed in (-1, 0, 2**63, 2**64 - 1, 2**70):
            assert 0 <= one(SCORES, Sampling(temperature=1.0, seed=seed)) < 5


class TestDrafts:
    @given(samplings, st.integers(0, 10**6), st.data())
    def test_a_draft_changes_no_text(self, sampling: Sampling, seed: int, data: st.DataObject) -> None:
        model, prompt = Model(40, seed), [3, 5, 3]
        expected = undrafted(model, sampling, prompt, 8)
        made: list[int] = []
        while len(made) < len(expected):
            right = expected[len(made) : len(made) + data.draw(st.integers(0, 4))]
            draft = [*right, *data.draw(st.lists(st.integers(0, 39), max_size=2))]
            rows = [model([*prompt, *made, *draft[:row]]) for row in range(len(draft) + 1)]
            chosen = choose(np.stack(rows), sampling, prompt=prompt, generated=made, draft=draft)
            assert chosen[:-1] == draft[: len(chosen) - 1]
            made += chosen
        assert made[: len(expected)] == expected

    def test_the_first_wrong_guess_ends_it(self) -> None:
        rows = np.eye(5, dtype=np.float32)[[2, 3, 4]]
        assert choose(rows, Sampling(), prompt=[], generated=[], draft=[2, 1]) == [2, 3]

    def test_after_a_draft_that_was_right_comes_one_more(self) -> None:
        rows = np.eye(5, dtype=np.float32)[[2, 3, 4]]
        assert choose(rows, Sampling(), prompt=[], generated=[], draft=[2, 3]) == [2, 3, 4]

    def test_fewer_rows_than_guesses_give_as_many_tokens_as_rows(self) -> None:
        rows = np.eye(5, dtype=np.float32)[[2, 3]]
        assert choose(rows, Sampling(), prompt=[], generated=[], draft=[2, 3, 1]) == [2, 3]


class TestGreedy:
    def test_temperature_0_takes_the_likeliest(self) -> None:
        assert one(SCORES, Sampling()) == 1

    def test_of_equals_the_first(self) -> None:
        assert one(np.array([0, 2, 2], np.float32), Sampling()) == 1

    @pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-40, 1e-6, 1e-4])
    def test_a_temperature_near_0_takes_the_likeliest(self, temperature: float) -> None:
        scores = np.array([-3e38, 5.0, 4.0, 3e38], np.float32)
        assert one(scores, Sampling(temperature=temperature, top_p=0.9)) == 3

    @given(st.integers(0, 2**32), st.sampled_from([0.5, 1.0, 5.0]))
    def test_top_k_1_is_greedy(self, seed: int, temperature: float) -> None:
        scores = np.random.default_rng(seed).normal(0, 1, 300).astype(np.float32)
        assert one(scores, Sampling(temperature=temperature, top_k=1, seed=seed)) == scores.argmax()

    @given(st.integers(0, 2**32))
    def test_the_smallest_top_p_is_greedy(self, seed: int) -> None:
        scores = np.random.default_rng(seed).normal(0, 1, 3000).astype(np.float32)
        assert one(scores, Sampling(temperature=1.0, top_p=1e-9, seed=seed)) == scores.argmax()


class TestPenalties:
    def test_presence_counts_a_generated_token_once(self) -> None:
        sampling = Sampling(presence_penalty=1.5)
        assert one(SCORES, sampling, generated=[1]) == 2
        assert one(SCORES, sampling, generated=[1, 2, 2, 2]) == 1

    def test_frequency_counts_each_time(self) -> None:
        sampling = Sampling(frequency_penalty=0.6)
        assert one(SCORES, sampling, generated=[1]) == 1
        assert one(SCORES, sampling, generated=[1, 1]) == 2

    def test_presence_and_frequency_leave_the_prompt_alone(self) -> None:
        assert one(SCORES, Sampling(presence_penalty=2.0, frequency_penalty=2.0), prompt=[1, 1, 1]) == 1

    def test_repetition_counts_the_prompt(self) -> None:
        assert one(SCORES, Sampling(repetition_penalty=2.0), prompt=[1]) == 2

    def test_repetition_lowers_negative_scores_too(self) -> None:
        scores = np.array([-1.0, -1.5], np.float32)
        assert one(scores, Sampling(repetition_penalty=2.0), prompt=[0]) == 1

    def test_tokens_of_a_draft_count_as_generated(self) -> None:
        rows = np.stack([SCORES] * 3)
        assert choose(rows, Sampling(presence_penalty=1.5), prompt=[], generated=[], draft=[1, 2]) == [1, 2, 1]

    def test_the_scores_given_stay_as_they_are(self) -> None:
        scores = SCORES.copy()
        one(scores, Sampling(temperature=1.0, presence_penalty=1.0, repetition_penalty=1.2), generated=[1])
        assert (scores == SCORES).all()


class TestWhatStaysInTheRunning:
    def test_min_p_is_relative_to_the_likeliest(self) -> None:
        counts = draws(SCORES, Sampling(temperature=1.0, min_p=0.2), 500)
        assert list(counts > 0) == [False, True, True, False, False]

    def test_min_p_1_leaves_the_likeliest_alone(self) -> None:
        assert list(draws(SCORES, Sampling(temperature=2.0, min_p=1.0), 50)) == [0, 50, 0, 0, 0]

    def test_top_k_keeps_so_many(self) -> None:
        assert list(draws(SCORES, Sampling(temperature=5.0, top_k=3), 500) > 0) == [True, True, True, False, False]

    def test_top_k_keeps_the_equals_of_the_last(self) -> None:
        scores = np.array([2.0, 1.0, 1.0, 0.0], np.float32)
        assert list(draws(scores, Sampling(temperature=2.0, top_k=2), 500) > 0) == [True, True, True, False]

    def test_top_p_keeps_the_fewest_that_have_as_much(self) -> None:
        scores = np.log(np.array([0.1, 0.4, 0.3, 0.2], np.float32))
        assert list(draws(scores, Sampling(temperature=1.0, top_p=0.65), 500) > 0) == [False, True, True, False]

    def test_top_p_counts_what_top_k_left(self) -> None:
        scores = np.log(np.array([0.1, 0.4, 0.3, 0.2], np.float32))
        counts = draws(scores, Sampling(temperature=1.0, top_k=2, top_p=0.55), 300)
        assert list(counts > 0) == [False, True, False, False]

    @given(
        st.integers(0, 2**32), st.sampled_from([0.01, 0.5, 0.9, 0.999, 0.999999]), st.sampled_from([0.01, 1, 4])
    )
    def test_top_p_of_a_whole_vocabulary_is_that_of_all_sorted(
        self, seed: int, top_p: float, spread: float
    ) -> None:
        scores = np.random.default_rng(seed).normal(0, spread, 9000).astype(np.float32)
        kept = kept_weights(scores - scores.max(), Sampling(temperature=1.0, top_p=top_p)) > 0
        descending = np.sort(softmax(scores))[::-1]
        count = int(np.searchsorted(np.cumsum(descending), top_p)) + 1
        assert abs(int(kept.sum()) - count) <= 1 + count // 1000
        assert kept.all() or scores[kept].min() > scores[~kept].max()


class TestExtremes:
    def test_not_a_number_is_never_chosen(self) -> None:
        scores = np.array([1.0, math.nan, 2.0], np.float32)
        assert one(scores, Sampling()) == 2
        assert one(scores, Sampling(temperature=1.0)) == 2

    def test_infinity_wins(self) -> None:
        scores = np.array([3.4e38, math.inf, 2.0], np.float32)
        assert one(scores, Sampling()) == 1
        assert one(scores, Sampling(temperature=1.0, top_p=0.5)) == 1

    def test_minus_infinity_is_out(self) -> None:
        scores = np.array([-math.inf, 0.0, -math.inf, 0.0], np.float32)
        counts = draws(scores, Sampling(temperature=1.0, top_p=0.99, repetition_penalty=1.5), 100)
        assert counts[[0, 2]].sum() == 0
        assert (counts[[1, 3]] > 0).all()

    def test_scores_that_say_nothing_give_some_token(self) -> None:
        for value in (-math.inf, math.nan):
            assert one(np.full(4, value, np.float32), Sampling(temperature=1.0)) == 0

    @given(
        samplings,
        st.lists(st.floats(width=32), min_size=1, max_size=600),
        st.lists(st.integers(0, 0), max_size=3),
    )
    def test_any_scores_give_a_token(self, sampling: Sampling, values: list[float], generated: list[int]) -> None:
        token = one(np.array(values, np.float32), sampling, prompt=[0], generated=generated)
        assert 0 <= token < len(values)


class TestValidate:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("temperature", -0.1),
            ("temperature", math.nan),
            ("temperature", math.inf),
            ("top_p", 0.0),
            ("top_p", 1.01),
            ("top_k", -1),
            ("min_p", -0.1),
            ("min_p", 1.5),
            ("presence_penalty", 2.5),
            ("frequency_penalty", -2.5),
            ("repetition_penalty", 0.0),
            ("repetition_penalty", math.nan),
        ],
    )
    def test_what_means_nothing_is_refused_by_name(self, name: str, value: float) -> None:
        with pytest.raises(InvalidSamplingError, match=name) as caught:
            validate(msgspec.structs.replace(Sampling(), **{name: value}))
        assert caught.value.parameter == name

    @given(samplings)
    def test_what_means_something_is_taken(self, sampling: Sampling) -> None:
        validate(sampling)
