"""The rules by which others scale, from what their documentation and sources say; none of their code.

All of them see requests in flight and in queues, averaged as their own pipelines average them, and none sees what
was refused. The target of each is `TARGET` of the certified concurrency. Knative's default is 70 %; with that, two
of them missed the objective on noise alone. Defaults are those of the documentation; what users may tune,
`copydesk.simulator.contest` tunes.
"""

from __future__ import annotations

import math
from collections import deque

from copydesk.autoscaler.limits import Limits
from copydesk.simulator.policy import View

TARGET = 0.6


class Window:
    """A mean over the last seconds."""

    def __init__(self, seconds: int) -> None:
        self._values: deque[float] = deque(maxlen=seconds)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Take in one second."""
        if len(self._values) == self._values.maxlen:
            self._sum -= self._values[0]
        self._values.append(value)
        self._sum += value

    def mean(self) -> float:
        """Return the mean."""
        return self._sum / len(self._values)


class Hpa:
    """Kubernetes' HorizontalPodAutoscaler, `autoscaling/v2`, on a metric of type Pods, with its default behaviour.

    Every 15 s; `desired = ceil(current x metric / target)`, nothing within a tolerance of 10 %. Pods that are not
    ready count as idle when it would grow, and not at all when it would shrink. Up by the larger of 4 pods and
    100 % in 15 s, without delay; down to the highest recommendation of the last 300 s, by up to 100 % in 15 s.
    https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/ (Algorithm details; Default
    behavior), and `calcPlainMetricReplicas` in kubernetes/pkg/controller/podautoscaler/replica_calculator.go. The
    metric is given a mean over one period, which is kind: through an adapter it takes longer. `up_ratio` is a
    policy of type Percent in `behavior.scaleUp`.
    """

    PERIOD_S, TOLERANCE, DOWN_S, UP_PODS, UP_RATIO = 15, 0.1, 300, 4, 2.0

    def __init__(self, target: float, limits: Limits, up_ratio: float = UP_RATIO) -> None:
        self._target, self._limits, self._up_ratio = target, limits, up_ratio
        self._load = Window(self.PERIOD_S)
        self._recommended: deque[int] = deque(maxlen=self.DOWN_S // self.PERIOD_S)

    def decide(self, view: View, now: float) -> int:
        """Return the size."""
        self._load.add(view.flow.in_flight + view.flow.queued)
        if int(now) % self.PERIOD_S:
            return view.size
        wanted = self._limits.clamp(self._desired(view))
        self._recommended.append(wanted)
        if wanted > view.size:
            return min(wanted, max(view.size + self.UP_PODS, math.floor(self._up_ratio * view.size)))
        return min(view.size, max(self._recommended))

    def _desired(self, view: View) -> int:
        if not view.ready:
            return view.size
        ratio = self._load.mean() / view.ready / self._target
        if ratio <= 1.0 or view.count == view.ready:
            return view.size if abs(ratio - 1.0) <= self.TOLERANCE else math.ceil(ratio * view.ready)
        idle = self._load.mean() / view.count / self._target
        return math.ceil(idle * view.count) if idle > 1.0 + self.TOLERANCE else view.size


class Kpa:
    """Knative's pod autoscaler (KPA) with its defaults.

    Every 2 s; a stable window of 60 s and a panic window of a tenth of that. Panic begins when the panic window
    calls for 200 % of the ready pods or more, ends once it has not for a stable window; in panic it only grows. No
    more than 1,000 times the ready pods, no less than half of them. It starts in panic, so as not to shrink before
    its windows are full. `stable_s` is `stable-window`, `down_delay_s` is `scale-down-delay`.
    https://knative.dev/docs/serving/autoscaling/kpa-specific/ and
    https://knative.dev/docs/serving/autoscaling/concurrency/ (target utilization 70 %), and `Scale` in
    knative/serving/pkg/autoscaler/scaling/autoscaler.go.
    """

    TICK_S, STABLE_S, PANIC_PART, THRESHOLD, UP_RATE, DOWN_RATE = 2, 60, 0.1, 2.0, 1000.0, 2.0

    def __init__(self, target: float, limits: Limits, stable_s: int = STABLE_S, down_delay_s: int = 0) -> None:
        self._target, self._limits, self._stable_s = target, limits, stable_s
        self._stable, self._panic = Window(stable_s), Window(max(1, round(self.PANIC_PART * stable_s)))
        self._recent: deque[int] = deque([0], maxlen=max(1, down_delay_s // self.TICK_S))
        self._panicked_at: float | None = None
        self._most = _NOT_YET

    def decide(self, view: View, now: float) -> int:
        """Return the size."""
        if self._most == _NOT_YET:
            self._most, self._panicked_at = view.ready, now if view.ready > 1 else None
        for window in (self._stable, self._panic):
            window.add(view.flow.in_flight + view.flow.queued)
        if int(now) % self.TICK_S:
            return view.size
        ready = max(1, view.ready)
        stable = self._bounded(self._stable.mean(), ready)
        panic = self._bounded(self._panic.mean(), ready)
        if math.ceil(self._panic.mean() / self._target) / ready >= self.THRESHOLD:
            self._panicked_at = now
        elif self._panicked_at is not None and now - self._panicked_at > self._stable_s:
            self._panicked_at, self._most = None, 0
        wanted = stable
        if self._panicked_at is not None:
            self._most = wanted = max(self._most, panic, stable)
        self._recent.append(wanted)
        return self._limits.clamp(max(self._recent))

    def _bounded(self, load: float, ready: int) -> int:
        wanted = math.ceil(load / self._target)
        return min(math.ceil(self.UP_RATE * ready), max(math.floor(ready / self.DOWN_RATE), wanted))


_NOT_YET = -1


class Ray:
    """Ray Serve's default policy, on ongoing requests.

    The mean of the last 30 s (`look_back_period_s`) over the running replicas and over `target_ongoing_requests`
    is the error ratio; with both scaling factors 1, desired is ceil(running x ratio). A downscaling factor takes
    that part of the way, rounded up, and one replica where that would be none. It has to call for more for 30 s
    (`upscale_delay_s`), or for less for 600 s (`downscale_delay_s`), without a break.
    https://docs.ray.io/en/latest/serve/advanced-guides/advanced-autoscaling.html and
    https://docs.ray.io/en/latest/serve/api/doc/ray.serve.config.AutoscalingConfig.html, and
    ray/python/ray/serve/autoscaling_policy.py.
    """

    LOOK_BACK_S, UP_S, DOWN_S = 30, 30.0, 600.0

    def __init__(
        self,
        target: float,
        limits: Limits,
        look_back_s: int = LOOK_BACK_S,
        up_s: float = UP_S,
        down_factor: float = 1.0,
    ) -> None:
        self._target, self._limits = target, limits
        self._up_s, self._down_factor = up_s, down_factor
        self._load = Window(look_back_s)
        self._since: tuple[int, float] | None = None

    def decide(self, view: View, now: float) -> int:
        """Return the size."""
        self._load.add(view.flow.in_flight + view.flow.queued)
        wanted = self._limits.clamp(self._desired(view)) if view.ready else view.size
        direction = (wanted > view.size) - (wanted < view.size)
        if direction == 0:
            self._since = None
            return view.size
        if self._since is None or self._since[0] != direction:
            self._since = (direction, now)
        if now - self._since[1] < (self._up_s if direction > 0 else self.DOWN_S):
            return view.size
        self._since = None
        return wanted

    def _desired(self, view: View) -> int:
        error = self._load.mean() / view.ready / self._target
        if error >= 1.0:
            return math.ceil(view.ready * error)
        wanted = math.ceil(view.ready * (1.0 + self._down_factor * (error - 1.0)))
        return wanted - 1 if wanted == view.ready and math.ceil(view.ready * error) < view.ready else wanted
