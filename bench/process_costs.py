"""What the processes of a pod spend, seen from outside: CPU time from the kernel, steps from the pod's metrics."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass

import psutil
from prometheus_client.parser import text_string_to_metric_families

_STEPS = "copydesk_inference_step_seconds_count"


@dataclass(frozen=True)
class Spent:
    """Since their start: CPU seconds of engines and of workers, and steps, 0 where nothing tells of them."""

    engine: float
    workers: float
    steps: float

    def __sub__(self, earlier: Spent) -> Spent:
        return Spent(self.engine - earlier.engine, self.workers - earlier.workers, self.steps - earlier.steps)


def spent(process: int, metrics_port: int | None) -> Spent:
    """Look at a pod, or with no `metrics_port` at an engine process by itself."""
    parent = psutil.Process(process)
    if metrics_port is None:
        return Spent(_seconds(parent), 0.0, 0.0)
    seconds = {"engine": 0.0, "worker": 0.0, "": 0.0}
    for child in parent.children(recursive=True):
        kind = " ".join(child.cmdline()[:2])
        seconds["engine" if "engine" in kind else "worker" if "worker" in kind else ""] += _seconds(child)
    return Spent(seconds["engine"], seconds["worker"], _steps(metrics_port))


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _steps(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == _STEPS)
