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

from copydesk.inference.engine.interface import Sampling
from copydesk.inference.engine.sampling_limits import validate

__all__ = ["choose", "kept_weights", "validate"]

Scores = NDArray[np.float32]

_FEW = 256
_BLOCK = 256
_SEEDS = 1 << 64
_COLDEST = 1e-5
"""A temperature below it takes the likeliest token, as 0 does: scores divided by it are no numbers any more."""


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
        return int(np.nan_to_num(penalised, nan=-np.inf, posinf=np.inf, neginf=-np.inf).argmax())
    if sampling.temperature < _COLDEST:
        return int(penalised.argmax())
    return _draw(penalised, highest, sampling, _uniform(sampling.seed, len(made)))


def _penalised(scores: Scores, sampling: Sampling, prompt: Sequence[int], made: Sequence[int]) -> Scores:
    if (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.0, 0.0, 0.0):
        return scores
    scores = scores.copy()
    if sampling.repetition_penalty != 1.0:
        seen = np.unique(np.asarray([*prompt, *made], np.int64))
        of_seen = scores[seen]
        penalty = np.float32(sampling.repetition_penalty)
        with np.errstate(over="ignore"):
            scores[seen] = np.where(of_seen > 0, of_seen / penalty, of_seen * penalty)
    if made:
        counts = Counter(made)
        numbers = np.fromiter(counts.values(), np.float32, len(counts))
        penalties = numbers * sampling.frequency_penalty + sampling.presence_penalty
        scores[np.fromiter(counts.keys(), np.int64, len(counts))] -= penalties.astype(np.float32)
    return scores


def _draw(scores: Scores, highest: float, sampling: Sampling, chance: float) -> int:
    """Draw a token; `chance`, from 0 to 1, decides which."""
    with np.errstate(over="ignore"):  # what is too unlikely for a number has no weight
        relative = (scores - np.float32(highest)) / np.float32(sampling.temperature)
    return _place(kept_weights(relative, sampling), chance)


def kept_weights(relative: Scores, sampling: Sampling) -> Scores:
    """Weights in proportion to which tokens are drawn: 0 for those that `min_p`, `top_k` and `top_p` rule out.

    `relative` are the scores less the highest, by temperature. Tokens as likely as the last that stays stay too.
    """
    weights: Scores = np.exp(relative)
    bar = math.log(sampling.min_p) if sampling.min_p > 0.0 else -math.inf
    if 0 < sampling.top_k < len(relative):
        bar = max(bar, float(np.partition(relative, -sampling.top_k)[-sampling.top_k]))
    if bar > -math.inf:
        weights *= relative >= bar
    if sampling.top_p < 1.0:
        weights *= weights >= _nucleus_bar(weights[weights > 0.0], sampling.top_p)
    return weights


def _nucleus_bar(weights: Scores, top_p: float) -> float:
    """The smallest weight among the fewest likeliest tokens that together have `top_p` of all weight.

    Nucleus sampling (Holtzman et al., arXiv 1904.09751). To sort a whole vocabulary takes long, so that the
    likeliest few are looked at first, then sixteen times as many, and so on.
    """
    share = top_p * float(weights.sum(dtype=np.float64))
    few = _FEW
    while True:
        likeliest = np.partition(weights, -few)[-few:] if few < len(weights) else weights
        likeliest = np.sort(likeliest)[::-1]
        sums = np.cumsum(likeliest, dtype=np.float64)
        if sums[-1] >= share or len(sums) == len(weights):
            last = min(int(np.searchsorted(sums, share, side="left")), len(sums) - 1)
            return float(likeliest[last])
        few *= 16


def _place(weights: Scores, chance: float) -> int:
    """The first index at which the running sum of the weights exceeds `chance` of the whole.

    Sums of blocks come first: a running sum over a whole vocabulary takes ten times as long.
    """
    blocks = np.cumsum(np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK), dtype=np.float64))
    wanted = min(chance * blocks[-1], math.nextafter(blocks[-1], 0.0))
    block = int(np.searchsorted(blocks, wanted, side="right"))
    before = float(blocks[block - 1]) if block else 0.0
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK]
    index = int(np.searchsorted(np.cumsum(inside, dtype=np.float64) + before, wanted, side="right"))
    return block * _BLOCK + min(index, int(np.flatnonzero(inside)[-1]))


def _uniform(seed: int, position: int) -> float:
    """A number from 0 to 1, by a generator whose state is a key and a counter (Salmon et al., SC 2011)."""
    return float(np.random.Generator(np.random.Philox(key=seed % _SEEDS, counter=position)).random())
