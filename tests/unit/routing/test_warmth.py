"""What a new pod counts."""

from __future__ import annotations

from math import inf

import pytest

from copydesk.routing import warmth


@pytest.mark.parametrize(
    ("age", "warm", "part"),
    [(0.0, 10.0, 0.1), (0.5, 10.0, 0.1), (5.0, 10.0, 0.5), (10.0, 10.0, 1.0), (inf, 10.0, 1.0), (0.0, 0.0, 1.0)],
)
def test_a_pod_counts_in_proportion_to_its_age_and_never_less_than_a_tenth(
    age: float, warm: float, part: float
) -> None:
    assert warmth(age, warm) == pytest.approx(part)
