"""What an engine takes: requests that its model can serve at all."""

from __future__ import annotations

from copydesk.inference.engine.interface import (
    EmptyPromptError,
    GenerateTokens,
    InvalidMaxTokensError,
    PromptTooLongError,
    UnknownTokenError,
)
from copydesk.inference.engine.sampling_limits import validate


def check(request: GenerateTokens, *, context: int, vocabulary: int) -> None:
    """Raise the `RequestError` that says why a request cannot be served, if it cannot."""
    if not request.prompt:
        raise EmptyPromptError
    if len(request.prompt) >= context:
        raise PromptTooLongError(len(request.prompt), context - 1)
    if request.max_tokens < 1:
        raise InvalidMaxTokensError(request.max_tokens)
    for token in (min(request.prompt), max(request.prompt)):
        if not 0 <= token < vocabulary:
            raise UnknownTokenError(token, vocabulary)
    if not request.sampling.is_greedy:
        validate(request.sampling)
