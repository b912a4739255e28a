"""How sure a measured share is: exact bounds on a probability, and the tail of Student's distribution.

Both come down to the regularised incomplete beta function, computed as a continued fraction (DLMF 8.17.22, by the
method of Lentz in the form of Thompson and Barnett, J. Comput. Phys. 64, 1986).
"""

from __future__ import annotations

import math

_TINY = 1e-300
_PRECISION = 1e-12
_TERMS = 100_000
_HALVINGS = 60
"""Of the interval in which a bound is looked for: down to the precision of a float."""


def upper_bound(hits: float, trials: float, confidence: float = 0.95) -> float:
    """Return the one-sided upper bound of Clopper and Pearson (Biometrika 26, 1934) on a probability.

    It is exact: whatever the probability, the bound is below it in at most `1 - confidence` of all experiments.
    With no hits at all in 298 trials it is just above 1 %, so that 299 is the least that can show less than 1 %.
    Neither needs to be whole: see `copydesk.loadtest.clusters`.
    """
    if trials <= 0 or hits >= trials:
        return 1.0
    return _beta_quantile(confidence, hits + 1.0, float(trials - hits))


def lower_bound(hits: float, trials: float, confidence: float = 0.95) -> float:
    """Return the one-sided lower bound of Clopper and Pearson on a probability."""
    if trials <= 0 or hits <= 0:
        return 0.0
    return _beta_quantile(1.0 - confidence, float(hits), trials - hits + 1.0)


def surely_below(share: float, hits: float, trials: float, confidence: float = 0.95) -> bool:
    """Say whether `upper_bound` is below `share`, without looking for it."""
    return 0 <= hits < trials and beta_share(share, hits + 1.0, float(trials - hits)) > confidence


def surely_above(share: float, hits: float, trials: float, confidence: float = 0.95) -> bool:
    """Say whether `lower_bound` is above `share`, without looking for it."""
    return 0 < hits <= trials and beta_share(share, float(hits), trials - hits + 1.0) < 1.0 - confidence


def student_tail(t: float, freedom: float) -> float:
    """Return P(T > `t`) for Student's T with `freedom` degrees of freedom, which need not be whole."""
    half = 0.5 * beta_share(freedom / (freedom + t * t), freedom / 2.0, 0.5)
    return half if t >= 0 else 1.0 - half


def beta_share(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), for `a` and `b` above 0."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * _fraction(x, a, b) / a
    return 1.0 - math.exp(log_front) * _fraction(1.0 - x, b, a) / b


def _beta_quantile(share: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        if beta_share(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1.0))
    result = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        factor = 1.0
        for term in (even, odd):
            d = 1.0 / _not_zero(1.0 + term * d)
            c = _not_zero(1.0 + term / c)
            factor = d * c
            result *= factor
        if abs(factor - 1.0) < _PRECISION:
            break
    return result


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
