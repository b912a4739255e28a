"""Tiny random models of every supported shape, and transformers as the judge of what is greedy."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers

from copydesk.common.rpc.frames import Priority
from copydesk.inference.engine import Engine, Finish, GeneratedTokens, GenerateTokens

NEAR_TIE = 1e-4  # two logits closer than this may be ranked either way by two correct programs
_SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("Llama", {}),
    "tied": ("Llama", {"tie_word_embeddings": True}),
    "no-sharing": ("Llama", {"num_key_value_heads": 6}),
    "one-kv-head": ("Llama", {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16}),
    "wide-heads": ("Llama", {"head_dim": 20, "num_attention_heads": 4}),
    "biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "rope-theta": ("Llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0}}),
    "rope-linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}},
    ),
    "rope-llama3": ("Llama", {"rope_parameters": _LLAMA3}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 64}),
    "qwen2": ("Qwen2", {}),
}


def write_reference(shape: str, directory: Path) -> Any:
    """Write a random model of `SHAPES` as transformers writes it, and return it."""
    family, changes = SHAPES[shape]
    config = getattr(transformers, f"{family}Config")(**{**_SMALL, **changes})
    torch.manual_seed(len(shape))
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    return model


def greedy(model: Any, request: GenerateTokens) -> list[int]:
    """What transformers generates, without the stop token."""
    generated = model.generate(
        torch.tensor([request.prompt]),
        attention_mask=torch.ones(1, len(request.prompt), dtype=torch.long),
        max_new_tokens=request.max_tokens,
        do_sample=False,
        eos_token_id=request.stop_ids or None,
        pad_token_id=0,
    )
    tokens: list[int] = generated[0, len(request.prompt) :].tolist()
    return tokens[:-1] if tokens and tokens[-1] in request.stop_ids else tokens


def is_greedy(model: Any, request: GenerateTokens, answer: GeneratedTokens) -> bool:
    """Say whether `greedy` would be the answer, by one pass over it instead of one for each of its tokens.

    It is if each token is the best after those before it, none of them is a stop token, and the end is one or the
    limit.
    """
    best: list[int] = scores_along(model, request, answer).argmax(-1).tolist()
    length = len(answer.tokens)
    if best[:length] != answer.tokens or not set(request.stop_ids).isdisjoint(answer.tokens):
        return False
    return best[length] in request.stop_ids if answer.finish is Finish.STOP else length == request.max_tokens


def assert_greedy(model: Any, request: GenerateTokens, answer: GeneratedTokens) -> bool:
    """Check an answer against transformers; return whether it is the same, else it differs by near-ties alone."""
    if is_greedy(model, request, answer) or answer.tokens == greedy(model, request):
        return True
    chosen = list(answer.tokens)
    if answer.finish is Finish.STOP:
        chosen.append(
            max(request.stop_ids, key=lambda stop: scores_along(model, request, answer)[-1, stop].item())
        )
    scores = scores_along(model, request, answer)[: len(chosen)]
    short_of_best = scores.max(-1).values - scores[torch.arange(len(chosen)), chosen]
    assert short_of_best.max() < NEAR_TIE, (request, answer, short_of_best)
    return False


def scores_along(model: Any, request: GenerateTokens, answer: GeneratedTokens) -> torch.Tensor:
    """The model's logits at each position of the answer and after it."""
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([request.prompt + answer.tokens])).logits[0]
    return logits[len(request.prompt) - 1 :]


@dataclass(frozen=True)
class Delivered:
    """What an engine made of requests that came and went at random; `answers` are by index."""

    answers: dict[int, GeneratedTokens]
    calls: Counter[int]
    cancelled: set[int]


def serve_at_random(
    engine: Engine, requests: Sequence[GenerateTokens], rng: random.Random, *, cancel: float = 0.0
) -> Delivered:
    """Submit `requests` in bursts between steps, cancel a share of them some time later, and run to the end."""
    delivered = Delivered({}, Counter(), set())
    waiting = list(enumerate(requests))
    to_cancel: list[tuple[int, int]] = []

    def deliver(index: int, answer: GeneratedTokens) -> None:
        delivered.answers[index] = answer
        delivered.calls[index] += 1

    more = True
    while waiting or more:
        for _ in range(min(rng.choice((0, 0, 1, 2, 5)), len(waiting))):
            index, request = waiting.pop(0)
            request_id = engine.submit(
                request,
                deadline=math.inf,
                priority=rng.choice(list(Priority)),
                on_done=functools.partial(deliver, index),
            )
            if rng.random() < cancel:
                to_cancel.append((index, request_id))
        for entry in [entry for entry in to_cancel if rng.random() < 0.3]:
            to_cancel.remove(entry)
            if entry[0] not in delivered.answers:
                engine.cancel(entry[1])
                delivered.cancelled.add(entry[0])
        more = engine.step(0.0)
    return delivered


def imperfect(rng: random.Random, tokens: Sequence[int], vocabulary: int) -> list[int]:
    """A source of which `tokens` may be the answer: the same, or with edits, or with what is no token at all."""
    if rng.random() < 0.1:
        return []
    source = list(tokens)
    for _ in range(rng.choice((0, 0, 1, 2, 5))):
        place = rng.randint(0, len(source))
        kind = rng.randrange(3)
        source[place : place + (kind != 0)] = [rng.randrange(vocabulary)] * (kind != 1)
    if rng.random() < 0.1:
        source.insert(rng.randint(0, len(source)), rng.choice((-1, vocabulary, 2**64)))
    return source + [rng.randrange(vocabulary) for _ in range(rng.choice((0, 0, 3)))]


def random_requests(rng: random.Random, count: int, *, longest: int, vocabulary: int) -> list[GenerateTokens]:
    """Prompts and limits of all sizes; some stop ids are likely to come up, and some end the prompt already."""
    requests = []
    for _ in range(count):
        prompt = [rng.randrange(vocabulary) for _ in range(rng.randint(1, longest))]
        stops = rng.sample(range(vocabulary), rng.choice((0, 1, 6)))
        if stops and rng.random() < 0.3:
            prompt[-1] = stops[0]
        requests.append(GenerateTokens(prompt=prompt, max_tokens=rng.randint(1, 16), stop_ids=stops))
    return requests
