"""From a request to vLLM's sampling parameters, and from its acceptance to how many passes an answer took."""

from __future__ import annotations

from typing import Any

from copydesk.inference.engine.interface import GenerateTokens, InvalidSamplingError, Sampling
from copydesk.inference.engine.vllm.client import Acceptance

_COLDEST = 1e-5
"""A temperature below it takes the likeliest token, with us and with vLLM."""

_SEEDS = 1 << 63


def sampling_parameters(request: GenerateTokens, *, context: int, vocabulary: int) -> dict[str, Any]:
    """Return the arguments of vLLM's `SamplingParams` for a request that the engine has taken.

    Only the request's own stop ids end it: the worker has put the model's among them, or left them out. Ids that
    are no tokens of the model can end nothing, and vLLM would refuse them.
    """
    sampling = request.sampling
    greedy = sampling.temperature < _COLDEST
    return {
        "max_tokens": min(request.max_tokens, context - len(request.prompt)),
        "stop_token_ids": [token for token in request.stop_ids if 0 <= token < vocabulary],
        "ignore_eos": True,
        "detokenize": False,
        "temperature": 0.0 if greedy else sampling.temperature,
        "top_p": 1.0 if greedy else sampling.top_p,
        "top_k": 0 if greedy else sampling.top_k,
        "min_p": 0.0 if greedy else sampling.min_p,
        "seed": None if greedy else sampling.seed % _SEEDS,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
    }


def require_drawable(sampling: Sampling, *, drafts: bool) -> None:
    """Raise `InvalidSamplingError` for what vLLM does not do while it drafts."""
    if drafts and sampling.min_p > 0.0 and sampling.temperature >= _COLDEST:
        raise InvalidSamplingError(
            "min_p", sampling.min_p, "0, since vLLM takes no min_p while it drafts (DRAFT=off takes it)"
        )


def passes(completion_tokens: int, acceptance: Acceptance) -> int:
    """Return how many passes of the model made so many tokens: one for each that was not guessed.

    What was guessed right behind the token that ended the answer is counted as accepted, and is not among them: so
    no fewer passes than those that verified, and the one that read the prompt.
    """
    return max(completion_tokens - acceptance.accepted, acceptance.verified + 1)
