"""Which values sampling parameters may have. Without numpy, so that RPC workers can afford to know."""

from __future__ import annotations

from copydesk.inference.engine.interface import InvalidSamplingError, Sampling


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
