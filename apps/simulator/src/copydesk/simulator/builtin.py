"""The traces that come with the simulator. All have their peak at 200,000 requests a second unless scaled.

`diurnal` is a working day of people who write: a slow dawn, a steep beginning of work, the peak before noon, a
sharp lunch break whose end is steeper than anything else, a second peak, an evening. Its noise has a memory of two
minutes. The others are the cases on which autoscalers differ: ten times as much from one second to the next and
back; twice as much for good; a flash crowd that comes in ten seconds and fades over minutes; and nothing but
noise. A seed draws the noise of all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from copydesk.simulator.trace import Seconds, Trace

PEAK = 200_000.0
DAY_S = 86_400
_NOISE_SEED = 20_240_510

_DAY = (
    # hour, share of the peak
    (0.0, 0.24), (2.0, 0.18), (5.0, 0.20), (7.0, 0.32), (8.5, 0.45), (8.75, 0.48), (9.25, 0.84), (10.5, 0.97),
    (11.0, 0.98), (11.9, 0.92), (12.1, 0.68), (12.95, 0.66), (13.05, 0.90), (14.5, 0.96), (16.5, 0.90),
    (17.5, 0.62), (19.5, 0.50), (20.5, 0.56), (22.0, 0.40), (24.0, 0.24),
)  # fmt: skip


def diurnal(seed: int = 1, days: int = 1) -> Trace:
    """One or more days of work, in which the steepest ramp is 36 % in six minutes."""
    seconds = np.arange(days * DAY_S)
    hours, shares = zip(*_DAY, strict=True)
    rates = np.interp(seconds % DAY_S / 3600.0, hours, shares)
    noisy = rates * (1.0 + _noise(seed, len(seconds), 0.01, 120.0))
    return _scaled("diurnal", f"{'a day' if days == 1 else f'{days} days'} of work with steep ramps", noisy)


def burst(seed: int = 1) -> Trace:
    """Ten times the load, at once, for five minutes."""
    rates = np.full(3600, 0.1)
    rates[1200:1500] = 1.0
    return _scaled("burst", "ten times the load for five minutes", rates * (1.0 + _noise(seed, 3600, 0.01, 30.0)))


def step(seed: int = 1) -> Trace:
    """Twice the load, at once and for good."""
    rates = np.full(3600, 0.5)
    rates[1200:] = 1.0
    return _scaled("step", "twice the load, for good", rates * (1.0 + _noise(seed, 3600, 0.01, 30.0)))


def flash(seed: int = 1) -> Trace:
    """Five times the load within ten seconds, that fades over minutes."""
    seconds = np.arange(3600.0)
    crowd = np.clip((seconds - 1200.0) / 10.0, 0.0, 1.0) * np.exp(-np.clip(seconds - 1210.0, 0.0, None) / 240.0)
    return _scaled(
        "flash",
        "a flash crowd: five times the load in ten seconds",
        (0.2 + 0.8 * crowd) * (1.0 + _noise(seed, 3600, 0.01, 30.0)),
    )


def noise(seed: int = 1) -> Trace:
    """Constant demand, give or take a tenth from one half minute to the next."""
    return _scaled("noise", "constant load with much noise", 0.7 * (1.0 + _noise(seed, 7200, 0.08, 30.0)))


BUILT_IN: dict[str, Callable[[int], Trace]] = {
    "diurnal": diurnal,
    "burst": burst,
    "step": step,
    "flash": flash,
    "noise": noise,
}


def _scaled(name: str, text: str, shape: Seconds) -> Trace:
    return Trace(name, text, shape).scaled(PEAK)


def _noise(seed: int, length: int, deviation: float, memory_s: float) -> Seconds:
    """Return noise of first order: its correlation fades with the time constant `memory_s`."""
    keep = float(np.exp(-1.0 / memory_s))
    fresh = np.random.default_rng((_NOISE_SEED, seed)).normal(0.0, deviation * np.sqrt(1.0 - keep * keep), length)
    found = np.empty(length)
    value = 0.0
    for second in range(length):
        value = keep * value + fresh[second]
        found[second] = value
    return np.clip(found, -0.9, 0.9)
