"""What is about to be measured: the fleet behind a URL, as its gateway tells, and what it runs on."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from collections.abc import Mapping
from urllib.parse import urlsplit

from copydesk.cli.api import FleetView, PodView
from copydesk.cli.bench.machine import read_machine
from copydesk.common.errors import CopydeskError
from copydesk.loadtest.certificate import Hardware
from copydesk.loadtest.record import Subject

SERVING = frozenset({"ready", "unused", "ejected"})
"""States of a pod that is there to serve; by this gateway perhaps not at this moment."""
UNKNOWN = "unknown"


class NotServedError(CopydeskError):
    """The fleet does not serve what was asked for; `exit_code` is 2 where another fleet or name was meant."""

    def __init__(self, message: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(message)


def subject_of(
    url: str, fleet: FleetView, *, model: str | None, hardware: str | None, config: Mapping[str, str]
) -> Subject:
    """Say what is measured; `config` comes on top of what the pods tell.

    Raises:
        NotServedError: It is not the model served, or no pod is there to serve it.
    """
    if model is not None and model != fleet.model:
        raise NotServedError(f"{model!r} is not served at {url}; {fleet.model!r} is", 2)
    pods = serving(fleet)
    if not pods or not fleet.model_digest:
        raise NotServedError(f"no pod is ready at {url}", 1)
    slots = sorted({pod.capacity for pod in pods if pod.capacity})
    told = {"slots": ",".join(map(str, slots))} if slots else {}
    return Subject(
        url=url,
        model=fleet.model,
        model_digest=fleet.model_digest,
        pods=len(pods),
        config={**told, **config},
        hardware=hardware_at(url, hardware),
    )


def serving(fleet: FleetView) -> list[PodView]:
    """Return the pods that are there to serve."""
    return [pod for pod in fleet.pods if pod.state in SERVING]


def slots_of(fleet: FleetView) -> int:
    """How many requests all pods together run side by side, as far as they tell; at least 1."""
    return max(1, sum(pod.capacity for pod in serving(fleet)))


def hardware_at(url: str, name: str | None) -> Hardware:
    """Say what a fleet runs on: what it is called, else this machine if the fleet is on it, else unknown."""
    if not is_local(url):
        return Hardware(name=name or UNKNOWN)
    machine = read_machine()
    return Hardware(
        name=name or accelerator() or machine.processor or UNKNOWN,
        cores=machine.cores,
        instructions=machine.instructions,
        memory_gib=machine.memory_gib,
        system=machine.system,
    )


def is_local(url: str) -> bool:
    """Say whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def accelerator() -> str:
    """Return the name of this machine's GPU; "" where there is none, or no tool that tells."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        told = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.splitlines()[0].strip() if told.returncode == 0 and told.stdout.strip() else ""
