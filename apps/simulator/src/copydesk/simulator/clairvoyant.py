"""The least that could be paid: by whoever knows all that will come.

For each second the pods that hold the objective, each ordered one cold start before it is needed. A pod that is
not needed for less than a cold start is kept, since to start it again would cost more. Pods are alike and each
decision concerns one, so that this is the minimum of pod hours without a violation; nobody can do it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from copydesk.autoscaler.limits import Limits
from copydesk.simulator.profile import Profile
from copydesk.simulator.trace import Seconds

Counts = NDArray[np.int64]


def plan(arrivals: Seconds, profile: Profile, limits: Limits, cold_start_s: float) -> tuple[Counts, Counts, int]:
    """Return for each second the pods that work and those that are paid for, and how often the number changed."""
    needed = (
        np.ceil(arrivals / profile.capacity.rate - 1e-9).astype(np.int64).clip(limits.min_pods, limits.max_pods)
    )
    lead = round(cold_start_s)
    working = np.zeros(len(needed), dtype=np.int64)
    paid = np.zeros(len(needed), dtype=np.int64)
    for layer in range(1, int(needed.max()) + 1):
        starts, ends = _spells(needed >= layer, lead)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            working[start:end] += 1
            paid[max(0, start - lead) : end] += 1
    return working, paid, int(np.count_nonzero(np.diff(working)))


def _spells(on: NDArray[np.bool_], gap: int) -> tuple[Counts, Counts]:
    """Return where spells begin and end; those with a gap between them that is too short to pay off are one."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], on.astype(np.int8), [0]))))
    starts, ends = edges[::2], edges[1::2]
    apart = starts[1:] - ends[:-1] > gap
    return starts[np.concatenate(([True], apart))], ends[np.concatenate((apart, [True]))]
