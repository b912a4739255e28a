"""Which pods to leave alone for a while, though they are connected: those that fail, stall or crawl.

Each is judged on the evidence of the requests it was sent. Load balancing by latency already keeps most of the
traffic away from such a pod; ejection keeps the rest away, and ends when the pod has had time to recover.
Compare Envoy's outlier detection (consecutive errors, success rate, growing ejection times), which knows neither
latency nor silence as a reason, and trips on answers that are only back-pressure.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import inf


class Reason(enum.StrEnum):
    """Why a pod is ejected: failures in a row, silence while others answer, or latency far above the others'."""

    FAILURES = "failures"
    SILENCE = "silence"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class OutlierRules:
    """When to eject, and for how long. Times in seconds, latencies in milliseconds.

    Five failures in a row are no accident. Five times the median is what no load explains that others carry too;
    one that is twice as slow still carries its part, and the balancer gives it less. `patience` is the least
    silence that counts; on a slow fleet it is twice the P99 of its answers, up to `longest_patience`. The
    first ejection lasts `first`, each further one twice as long,
    up to `longest`; good conduct for as long as `longest` makes the next one the first again.
    """

    failures: int = 5
    slow_ratio: float = 5.0
    slow_least_ms: float = 50.0
    slow_samples: int = 10
    patience: float = 0.5
    longest_patience: float = 60.0
    first: float = 2.0
    longest: float = 60.0


@dataclass(frozen=True, slots=True)
class Conduct:
    """The evidence on one pod: see `Ledger`, whose fields these are. `silent` and `answered_at` in seconds.

    Latencies are compared among pods of one `version`: in a rollout the other may be quicker, or have less to do.
    """

    id: str
    failures: int
    mean_ms: float
    samples: int
    silent: float
    answered_at: float
    version: str = ""


@dataclass(frozen=True, slots=True)
class Norm:
    """What is usual in the fleet.

    `median_ms` is the median of the pods' mean latencies, infinite while too few are known; `patience` the seconds
    of silence that are too many; `answered_at` when any pod last answered.
    """

    median_ms: float
    patience: float
    answered_at: float


@dataclass(frozen=True, slots=True)
class Ejection:
    """A pod that is left alone: why, until when, and how many times in a row it has been by now."""

    reason: Reason
    until: float
    times: int


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a review changed: the pods ejected anew or again, with the reason, and those that are back."""

    ejected: tuple[tuple[str, Reason], ...] = ()
    released: tuple[str, ...] = ()


def norm_of(conducts: Collection[Conduct], p99_ms: float | None, rules: OutlierRules) -> Norm:
    """Return what is usual among these pods; `p99_ms` is the P99 of the latencies of all of them, if known."""
    means = [one.mean_ms for one in conducts if one.samples >= rules.slow_samples]
    median = statistics.median_low(means) if len(means) >= 2 else inf
    usual = 2.0 * (p99_ms or 0.0) / 1000.0
    patience = min(max(rules.patience, usual), rules.longest_patience)
    return Norm(median, patience, max((one.answered_at for one in conducts), default=-inf))


def norms_of(conducts: Collection[Conduct], p99_ms: float | None, rules: OutlierRules) -> dict[str, Norm]:
    """Return what is usual among the pods of each version: who answers tells of all, latencies of their own."""
    norm = norm_of(conducts, p99_ms, rules)
    versions = {one.version for one in conducts}
    if len(versions) < 2:
        return dict.fromkeys(versions, norm)
    apart = {version: [one for one in conducts if one.version == version] for version in versions}
    return {
        version: replace(norm, median_ms=norm_of(those, p99_ms, rules).median_ms)
        for version, those in apart.items()
    }


def judge(conduct: Conduct, norm: Norm, rules: OutlierRules, now: float) -> Reason | None:
    """Say why a pod should be ejected; None if it should not."""
    if conduct.failures >= rules.failures:
        return Reason.FAILURES
    if conduct.silent >= norm.patience and now - norm.answered_at <= conduct.silent / 2.0:
        # Somebody answered in the later half of the silence. Without that nobody may be asked, or all be slow, or
        # this process itself have stood still.
        return Reason.SILENCE
    slow = max(rules.slow_ratio * norm.median_ms, norm.median_ms + rules.slow_least_ms)
    if conduct.samples >= rules.slow_samples and conduct.mean_ms >= slow:
        return Reason.LATENCY
    return None


def usable(pods: Sequence[str], ejected: Collection[str]) -> tuple[tuple[str, ...], bool]:
    """Return the pods that may be used, and whether that is panic.

    Never more than half are left out: when fewer than half are well, the fault is likelier to be elsewhere (their
    network, a poisonous request, too much load), and what is left could not carry the load anyway. Then all are
    used. Compare Envoy's panic threshold.
    """
    well = tuple(pod for pod in pods if pod not in ejected)
    if 2 * len(well) < len(pods):
        return tuple(pods), True
    return well, False


class Outliers:
    """The pods that are ejected now, and the record of those that were."""

    def __init__(self, rules: OutlierRules | None = None) -> None:
        self.rules = rules or OutlierRules()
        self._ejected: dict[str, Ejection] = {}
        self._past: dict[str, Ejection] = {}

    @property
    def ejected(self) -> dict[str, Ejection]:
        """Who is ejected, and why."""
        return self._ejected

    def review(self, conducts: Sequence[Conduct], p99_ms: float | None, now: float) -> Verdicts:
        """Judge every pod of the fleet; those that are not among `conducts` are forgotten.

        A pod whose time is up comes back unless the evidence against it stands; one that was silent comes back as
        soon as it has answered. Whoever ejects must forget the evidence that it was for, the failures or samples,
        so that the next verdict needs new one.
        """
        self._forget_all_but({one.id for one in conducts})
        norms = norms_of(conducts, p99_ms, self.rules)
        ejected: list[tuple[str, Reason]] = []
        released: list[str] = []
        for conduct in conducts:
            norm = norms[conduct.version]
            held = self._ejected.get(conduct.id)
            if held is not None and not self._is_over(held, conduct, norm, now):
                continue
            reason = judge(conduct, norm, self.rules, now)
            if reason is not None:
                self._eject(conduct.id, reason, now)
                ejected.append((conduct.id, reason))
            elif held is not None:
                self._past[conduct.id] = self._ejected.pop(conduct.id)
                released.append(conduct.id)
        return Verdicts(tuple(ejected), tuple(released))

    def _is_over(self, held: Ejection, conduct: Conduct, norm: Norm, now: float) -> bool:
        spoke = held.reason is Reason.SILENCE and conduct.silent < norm.patience / 2.0
        return now >= held.until or (spoke and conduct.answered_at > now - norm.patience)

    def _eject(self, pod: str, reason: Reason, now: float) -> None:
        before = self._ejected.get(pod) or self._past.get(pod)
        rules = self.rules
        fresh = before is None or now - before.until > rules.longest
        times = 1 if fresh or before is None else before.times + 1
        seconds = min(rules.longest, rules.first * 2.0 ** min(times - 1, 32))
        self._ejected[pod] = Ejection(reason, now + seconds, times)

    def _forget_all_but(self, pods: Collection[str]) -> None:
        for record in (self._ejected, self._past):
            for pod in [pod for pod in record if pod not in pods]:
                del record[pod]
