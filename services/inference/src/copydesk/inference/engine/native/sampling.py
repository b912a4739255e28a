"""How tokens are chosen from a model's scores: penalties, temperature, what stays in the running, and the draw.

The parameters are the OpenAI API's, with vLLM's additions and its order: penalties, temperature, then `min_p`,
`top_k` and `top_p`, each of what the one before it left. A draw depends on the seed and on how many tokens were
made before it, and on nothing else: neither company nor drafts change an answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from copydesk.inference.engine.interface import InvalidSamplingError, Sampling

Scores = NDArray[np.float32]

_FIRST_LOOK = (
    256  # of so many likeliest tokens the most of what top_p keeps consists; sorting all takes milliseconds
)
_SEEDS = 1 << 64


def validate(sampling: Sampling) -> None:
    """Raise `InvalidSamplingError` for a parameter that means nothing."""
    limits: tuple[tuple[str, float, bool, str], ...] = (
        ("temperature", sampling.temperature, 0.0 <= sampling.temperature <= 100.0, "0 to 100"),
        ("top_p", sampling.top_p, 0.0 < sampling.top_p <= 1.0, "more than 0, and 1 at the most"),
        ("top_k", sampling.top_k, sampling.top_k >= 0, "0, for all tokens, or more"),
        ("min_p", sampling.min_p, 0.0 <= sampling.min_p <= 1.0, "0 to 1"),
        ("presence_penalty", sampling.presence_penalty, -2.0 <= sampling.presence_penalty <= 2.0, "-2 to 2"),
        ("frequency_penalty", sampling.frequency_penalty, -2.0 <= sampling.frequency_penalty <= 2.0, "-2 to 2"),
        ("repetition_penalty", sampling.repetition_penalty, 0.0 < sampling.repetition_penalty <= 10.0, "0 to 10"),
    )
    for name, value, holds, expected in limits:
        if not holds:  # not a number holds nothing
            raise InvalidSamplingError(name, value, expected)


def choose(
    scores: Scores,
    sampling: Sampling,
    *,
    prompt: Sequence[int],
    generated: Sequence[int],
    draft: Sequence[int] = (),
) -> list[int]:
    """Choose the tokens that follow `generated`, for as long as they are those of the draft.

    Row i of `scores` [rows, vocabulary] belongs to what follows i tokens of the draft, of which there is one less
    than rows. The answer has as many tokens as were right, and one more.
    """
    chosen: list[int] = []
    for row, guess in enumerate([*draft, None][: len(scores)]):
        made = [*generated, *chosen]
        token = _choose_one(scores[row], sampling, prompt, made)
        chosen.append(token)
        if token != guess:
            break
    return chosen


def _choose_one(scores: Scores, sampling: Sampling, prompt: Sequence[int], made: Sequence[int]) -> int:
    penalised = _penalised(scores, sampling, prompt, made)
    highest = float(penalised.max())
    if not math.isfinite(highest):
        return int(np.nan_to_num(penalised, nan=-np.inf).argmax())
    if sampling.temperature == 0.0:
        return int(penalised.argmax())
    return _draw(penalised, highest, sampling, _uniform(sampling.seed, len(made)))


def _penalised(scores: Scores, sampling: Sampling, prompt: Sequence[int], made: Sequence[int]) -> Scores:
    if (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.0, 0.0, 0.0):
        return scores
    scores = scores.copy()
    if sampling.repetition_penalty != 1.0:
        seen = np.unique([*prompt, *made])
        of_seen = scores[seen]
        penalty = np.float32(sampling.repetition_penalty)
        scores[seen] = np.where(of_seen > 0, of_seen / penalty, of_seen * penalty)
    if made:
        counts = Counter(made)
        numbers = np.fromiter(counts.values(), np.float32, len(counts))
        penalties = numbers * sampling.frequency_penalty + sampling.presence_penalty
        scores[np.fromiter(counts.keys(), np.int64, len(counts))] -= penalties.astype(np.float32)
    return scores


def _draw(scores: Scores, highest: float, sampling: Sampling, chance: float) -> int:
    """Draw a token; `chance` from 0 to 1 decides which."""
    relative = (scores - np.float32(highest)) / np.float32(sampling.temperature)
    kept = _kept(relative, sampling)
    weights = np.exp(relative[kept], dtype=np.float64)
    sums = np.cumsum(weights)
    place = int(np.searchsorted(sums, chance * sums[-1], side="right"))
    return int(kept[min(place, len(kept) - 1)])


def _kept(relative: Scores, sampling: Sampling) -> NDArray[np.int64]:
    """The tokens that stay in the running; `relative` are the scores less the highest, by temperature."""
    bar = math.log(sampling.min_p) if sampling.min_p > 0.0 else -math.inf
    if 0 < sampling.top_k < len(relative):
        bar = max(bar, float(np.partition(relative, -sampling.top_k)[-sampling.top_k]))
    kept = np.flatnonzero(relative >= bar)
    return kept if sampling.top_p >= 1.0 else _nucleus(relative, kept, sampling.top_p)


def _nucleus(relative: Scores, kept: NDArray[np.int64], top_p: float) -> NDArray[np.int64]:
    """The fewest of the likeliest with `top_p` of the whole weight (Holtzman et al., arXiv 1904.09751)."""
    weights = np.exp(relative[kept], dtype=np.float64)
    share = top_p * float(weights.sum())
    look = _FIRST_LOOK
    while True:
        look = min(look, len(kept))
        likeliest = np.argpartition(-weights, look - 1)[:look]
        likeliest = likeliest[np.argsort(-weights[likeliest], kind="stable")]
        sums = np.cumsum(weights[likeliest])
        if sums[-1] >= share or look == len(kept):
            count = int(np.searchsorted(sums, share, side="left")) + 1
            return np.sort(kept[likeliest[:count]])
        look *= 8


def _uniform(seed: int, position: int) -> float:
    """A number from 0 to 1, by a generator whose state is a key and a counter (Salmon et al., SC 2011)."""
    return float(np.random.Generator(np.random.Philox(key=seed % _SEEDS, counter=position)).random())
