"""Confidence intervals by the bootstrap: what the figures would have been on other sentences of the same kind.

Sentences are drawn with replacement, as many as there are, 1,000 times; the figures of both models come from the
same draws, so that what is hard for both cancels out in their difference (Koehn, "Statistical Significance Tests
for Machine Translation Evaluation", EMNLP 2004).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESAMPLES = 1000
CONFIDENCE = 0.95


def weights(sentences: int, resamples: int, seed: int) -> Array:
    """Return how often each resample (a row) has each sentence (a column)."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(sentences, np.full(sentences, 1.0 / sentences), size=resamples).astype(np.float64)


def interval(values: Array, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the range that holds this part of the values and leaves as many out on either side."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail])
    return float(low), float(high)


def ratio(numerators: Array, denominators: Array, none: float = 0.0) -> Array:
    """Divide, with `none` where there is nothing to divide by."""
    counted = denominators > 0.0
    return np.where(counted, numerators / np.where(counted, denominators, 1.0), none)
