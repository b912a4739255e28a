"""Pairs as batches of one shape, several pairs a row: token ids, labels and weights."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recipe.pairs import Pair

PREFIX, SUFFIX = "<|im_start|>", "<|im_end|>"
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
    """Rows of packed examples: by token its id, its place in its example, and the example's number, -1 for none.

    `places` are the tokens (counted through all rows) after which `labels` are to be learnt, each as its weight
    says.
    """

    ids: Tensor
    segments: Tensor
    positions: Tensor
    places: Tensor
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


@dataclass(frozen=True)
class Shape:
    """Rows and tokens a row of a batch, and how many labels it has room for."""

    rows: int = 12
    width: int = 128
    labels: int = 800


def batches(
    pairs: Callable[[], list[Pair]], tokenizer: Any, rng: random.Random, shape: Shape, edit_weight: float
) -> Iterator[Batch]:
    """Batches of one shape, for ever; `pairs` is asked again each time all were seen."""
    while True:
        waiting = pairs()
        rng.shuffle(waiting)
        for start in range(0, len(waiting), _CHUNK):
            examples = [encode(tokenizer, pair, edit_weight) for pair in waiting[start : start + _CHUNK]]
            fitting = [example for example in examples if len(example) <= shape.width]
            packed = pack(fitting, shape.width)
            rng.shuffle(packed)
            yield from _fill(packed, shape)


def pack(examples: Sequence[Example], width: int) -> list[list[Example]]:
    """Examples in rows of at most `width` tokens: the longest first, each into the fullest row that has room."""
    rows: list[list[Example]] = []
    rooms: list[int] = []
    for example in sorted(examples, key=len, reverse=True):
        fitting = [place for place, room in enumerate(rooms) if room >= len(example)]
        if fitting:
            place = min(fitting, key=rooms.__getitem__)
            rows[place].append(example)
            rooms[place] -= len(example)
        else:
            rows.append([example])
            rooms.append(width - len(example))
    return rows


def _fill(packed: Sequence[list[Example]], shape: Shape) -> Iterator[Batch]:
    """Whole batches; what is left over at the end is not worth a batch with empty rows."""
    taken: list[list[Example]] = []
    labels = 0
    for row in packed:
        wanted = sum(len(example.completion) for example in row)
        if len(taken) == shape.rows or labels + wanted > shape.labels:
            yield _batch(taken, shape)
            taken, labels = [], 0
        taken.append(row)
        labels += wanted
    if len(taken) > shape.rows // 2:
        yield _batch(taken, shape)


def _batch(packed: Sequence[list[Example]], shape: Shape) -> Batch:
    size = (shape.rows, shape.width)
    ids, segments, positions = torch.zeros(size, dtype=torch.long), torch.full(size, -1), torch.zeros(size).long()
    places, labels = torch.zeros(shape.labels).long(), torch.zeros(shape.labels).long()
    weights = torch.zeros(shape.labels)
    made = 0
    for index, row in enumerate(packed):
        start = 0
        for number, example in enumerate(row):
            end, more = start + len(example), len(example.completion)
            ids[index, start:end] = torch.tensor(example.prompt + example.completion)
            segments[index, start:end] = number
            positions[index, start:end] = torch.arange(len(example))
            first = index * shape.width + start + len(example.prompt) - 1
            places[made : made + more] = torch.arange(first, first + more)
            labels[made : made + more] = torch.tensor(example.completion)
            weights[made : made + more] = torch.tensor(example.weights)
            start, made = end, made + more
    return Batch(ids, segments, positions, places, labels, weights)
