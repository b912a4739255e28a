"""A network namespace for the registry, behind a link of a chosen rate."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.image.errors import BenchError


@dataclass(frozen=True)
class Link:
    """The node's end of the link is `device` here, the registry's is in `namespace` at `address`."""

    namespace: str
    device: str
    address: str

    def shape(self, megabits: float) -> None:
        """Limit both directions; a token bucket, whose burst the kernel needs at this rate."""
        burst = max(int(megabits * 1e6 / 8 / 200), 64 << 10)
        limit = ["root", "tbf", "rate", f"{megabits}mbit", "burst", str(burst), "latency", "50ms"]
        call("tc", "qdisc", "replace", "dev", self.device, *limit)
        self.inside("tc", "qdisc", "replace", "dev", "eth0", *limit)

    def inside(self, *command: str) -> None:
        """Run a command in the registry's namespace."""
        call("ip", "netns", "exec", self.namespace, *command)

    def received(self) -> int:
        """Bytes that came from the registry so far, headers of packets and all."""
        return int(Path(f"/sys/class/net/{self.device}/statistics/rx_bytes").read_text())


@contextmanager
def link() -> Iterator[Link]:
    """Make the namespace and the link, and remove both. Addresses are of 198.18.0.0/15, kept for benchmarks."""
    name, device = f"cdbench{os.getpid()}", f"cdb{os.getpid()}"
    network = f"198.18.{os.getpid() % 250}"
    own = Link(name, device, f"{network}.2")
    try:
        call("ip", "netns", "add", name)
        call("ip", "link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", name)
        call("ip", "addr", "add", f"{network}.1/30", "dev", device)
        call("ip", "link", "set", device, "up")
        own.inside("ip", "addr", "add", f"{network}.2/30", "dev", "eth0")
        own.inside("ip", "link", "set", "eth0", "up")
        own.inside("ip", "link", "set", "lo", "up")
        yield own
    finally:
        for command in (("ip", "link", "del", device), ("ip", "netns", "del", name)):
            with suppress(BenchError):
                call(*command)


def call(*command: str, timeout: float = 60.0) -> str:
    """Run a command; return what it printed. Raises BenchError if it fails."""
    return call_in(command, None, timeout)


def call_in(command: Sequence[str], environment: dict[str, str] | None, timeout: float) -> str:
    """Run a command in an environment."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(command[0], str(error)) from error
    if done.returncode != 0:
        raise BenchError(" ".join(command[:4]), (done.stderr or done.stdout)[-1500:])
    return done.stdout
