"""Pairs as padded batches of token ids, labels and weights.

Right padding under a causal mask needs no attention mask; sentences of like length share a batch.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recipe.pairs import Pair

PREFIX, SUFFIX = "<|im_start|>", "<|im_end|>"
NO_LABEL = -1
_CHUNK = 400


@dataclass(frozen=True)
class Example:
    """Prompt ids, completion ids, and how much each of the latter counts."""

    prompt: list[int]
    completion: list[int]
    weights: list[float]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


@dataclass(frozen=True)
class Batch:
    """A row an example: input ids, the next token where it is to be learnt, and its weight."""

    ids: Tensor
    labels: Tensor
    weights: Tensor


def encode(tokenizer: Any, pair: Pair, edit_weight: float) -> Example:
    """Tokenise a pair; tokens that differ from the source weigh `edit_weight`, for most of a target is a copy."""
    source = tokenizer(pair.source, add_special_tokens=False).input_ids
    target = tokenizer(pair.target, add_special_tokens=False).input_ids
    weights = [1.0] * (len(target) + 1)
    for kind, _, _, start, end in difflib.SequenceMatcher(a=source, b=target, autojunk=False).get_opcodes():
        if kind != "equal":
            for position in range(start, max(end, start + 1)):
                weights[position] = edit_weight
    start_id, end_id = tokenizer.convert_tokens_to_ids([PREFIX, SUFFIX])
    return Example([start_id, *source, end_id], [*target, end_id], weights)


def batches(
    pairs: list[Pair],
    tokenizer: Any,
    rng: random.Random,
    *,
    batch_tokens: int,
    max_length: int,
    edit_weight: float,
) -> Iterator[Batch]:
    """Batches of at most `batch_tokens`, padding included, for ever; without examples longer than `max_length`."""
    while True:
        rng.shuffle(pairs)
        for start in range(0, len(pairs), _CHUNK):
            examples = [encode(tokenizer, pair, edit_weight) for pair in pairs[start : start + _CHUNK]]
            fitting = sorted((example for example in examples if len(example) <= max_length), key=len)
            groups = _group(fitting, batch_tokens)
            rng.shuffle(groups)
            yield from map(_pad, groups)


def _group(examples: Sequence[Example], batch_tokens: int) -> list[list[Example]]:
    groups: list[list[Example]] = [[]]
    for example in examples:  # from short to long, so that the newest is as long as its row
        if groups[-1] and (len(groups[-1]) + 1) * len(example) > batch_tokens:
            groups.append([])
        groups[-1].append(example)
    return [group for group in groups if group]


def _pad(examples: Sequence[Example]) -> Batch:
    shape = (len(examples), max(map(len, examples)) - 1)
    ids, weights = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
    labels = torch.full(shape, NO_LABEL)
    for row, example in enumerate(examples):
        sequence = (example.prompt + example.completion)[:-1]
        learnt = slice(len(example.prompt) - 1, len(sequence))
        ids[row, : len(sequence)] = torch.tensor(sequence)
        labels[row, learnt] = torch.tensor(example.completion)
        weights[row, learnt] = torch.tensor(example.weights)
    return Batch(ids, labels, weights)
