"""The same tokens stay in the running, with the same weights, as with transformers' processors of scores."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from copydesk.inference.engine import Sampling
from copydesk.inference.engine.native.sampling import choose, kept_weights

VOCABULARY = 500
seeds = st.integers(0, 2**32)


def scores_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 3.0, VOCABULARY).astype(np.float32)


def theirs(scores: np.ndarray, *processors: object) -> np.ndarray:
    no_tokens: Any = torch.zeros((1, 1), dtype=torch.long)
    logits = LogitsProcessorList(processors)(no_tokens, torch.from_numpy(scores[np.newaxis].copy()))
    probabilities: np.ndarray = torch.softmax(logits[0], dim=-1).numpy()
    return probabilities


def ours(scores: np.ndarray, sampling: Sampling) -> np.ndarray:
    relative = (scores - scores.max()) / np.float32(sampling.temperature)
    weights = kept_weights(relative, sampling)
    probabilities: np.ndarray = weights / weights.sum()
    return probabilities


@given(seeds, st.floats(0.1, 3.0))
def test_temperature(seed: int, temperature: float) -> None:
    scores = scores_of(seed)
    expected = theirs(scores, TemperatureLogitsWarper(temperature))
    np.testing.assert_allclose(ours(scores, Sampling(temperature=temperature)), expected, rtol=1e-3, atol=1e-7)


@given(seeds, st.integers(1, VOCABULARY))
def test_top_k(seed: int, top_k: int) -> None:
    scores = scores_of(seed)
    expected = theirs(scores, TopKLogitsWarper(top_k))
    np.testing.assert_allclose(ours(scores, Sampling(temperature=1.0, top_k=top_k)), expected, rtol=1e-3)


@given(seeds, st.floats(0.01, 0.99))
def test_top_p(seed: int, top_p: float) -> None:
    scores = scores_of(seed)
    expected = theirs(scores, TopPLogitsWarper(top_p))
    actual = ours(scores, Sampling(temperature=1.0, top_p=top_p))
    if ((expected > 0) != (actual > 0)).any():  # a sum so near to top_p that rounding decides
        sums = np.sort(torch.softmax(torch.from_numpy(scores), 0).numpy())[::-1].cumsum()
        assert abs(sums - top_p).min() < 1e-5
        return
    np.testing.assert_allclose(actual, expected, rtol=1e-3)


@given(seeds, st.floats(0.001, 1.0))
def test_min_p(seed: int, min_p: float) -> None:
    scores = scores_of(seed)
    expected = theirs(scores, MinPLogitsWarper(min_p))
    np.testing.assert_allclose(ours(scores, Sampling(temperature=1.0, min_p=min_p)), expected, rtol=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_all_of_them_in_this_order(seed: int) -> None:
    scores = scores_of(seed)
    expected = theirs(
        scores,
        TemperatureLogitsWarper(1.4),
        MinPLogitsWarper(0.02),
        TopKLogitsWarper(40),
        TopPLogitsWarper(0.8),
    )
    sampling = Sampling(temperature=1.4, min_p=0.02, top_k=40, top_p=0.8)
    np.testing.assert_allclose(ours(scores, sampling), expected, rtol=1e-3)


@given(
    seeds,
    st.floats(0.5, 2.0),
    st.lists(st.integers(0, VOCABULARY - 1), max_size=200),
    st.lists(st.integers(0, VOCABULARY - 1), max_size=200),
)
def test_repetition_penalty(seed: int, penalty: float, prompt: list[int], generated: list[int]) -> None:
    scores = scores_of(seed)
    seen: Any = torch.tensor([[*prompt, *generated]], dtype=torch.long)
    expected = int(
        RepetitionPenaltyLogitsProcessor(penalty)(seen, torch.from_numpy(scores[np.newaxis].copy())).argmax()
    )
    sampling = Sampling(repetition_penalty=penalty)
    assert choose(scores[np.newaxis], sampling, prompt=prompt, generated=generated) == [expected]
