"""Which decisions of the autoscaler make a node fetch an image ahead."""

from __future__ import annotations

import pytest

from copydesk.common.messages import ScaleDecision
from copydesk.imagefetcher.forecast import calls_for_image


def decision(replicas: int, image: str = "app:v1") -> ScaleDecision:
    return ScaleDecision(model="m", sent_at=1.0, replicas=replicas, reason="", image=image)


@pytest.mark.parametrize(
    ("before", "now", "calls"),
    [
        (None, decision(1), True),
        (decision(1), decision(2), True),
        (decision(2), decision(2), False),
        (decision(3), decision(2), False),
        (decision(2), decision(2, "app:v2"), True),
        (decision(1), decision(2, ""), False),
        (None, decision(0), False),
    ],
)
def test_more_pods_or_another_image_call_for_it(
    before: ScaleDecision | None, now: ScaleDecision, calls: bool
) -> None:
    assert calls_for_image(before, now) is calls
