"""The stargz snapshotter beside ours: an image made into eStargz by its own client, and pulled lazily by it.

It is optional: `stargz/build.sh` makes its programs of Debian's packages.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.image.content import Start
from bench.image.errors import BenchError
from bench.image.network import Link, call_in
from bench.image.processes import Containerd, run_process, wait_until
from bench.image.running import Run, forget, measure

PERIOD_S = 5


class Stargz:
    """Its programs, its socket (which containerd must know as the snapshotter `stargz`), and the registry."""

    def __init__(self, programs: Path, folder: Path, socket: Path, host: str) -> None:
        self._programs = programs
        self._folder = folder
        self._socket = socket
        self._host = host

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the snapshotter; before containerd, which seldom looks for one that was not there."""
        log = self._folder / "log"
        command = [str(self._programs / "stargz"), str(self._folder / "root"), str(self._socket), self._host]
        with run_process(command, log):
            wait_until("stargz", log, self._socket.exists)
            yield

    def optimise(self, containerd: Containerd, reference: str, target: str, start: Start) -> None:
        """Make an eStargz image of `reference`, ordered by what the start-up reads, and push it as `target`."""
        arguments = json.dumps(["start", *start.modules])
        self._client(containerd, "pull", "--plain-http", reference)
        try:
            self._client(
                *(containerd, "optimize", "--oci", "--period", str(PERIOD_S)),
                *("--args", arguments, reference, target),
            )
            self._client(containerd, "push", "--plain-http", target)
        finally:
            for name in (reference, target):
                with contextlib.suppress(BenchError):
                    containerd.ctr("images", "rm", "--sync", name)

    def run(self, link: Link, containerd: Containerd, reference: str, start: Start) -> Run:
        """Pull the image lazily and start it. Once only: containerd and the snapshotter remember it for a day."""
        name = f"stargz-{uuid.uuid4().hex[:8]}"

        def prepare() -> list[str]:
            self._client(containerd, "rpull", "--plain-http", reference)
            return ["--snapshotter", "stargz", reference, name]

        try:
            return measure(link, containerd, prepare, start)
        finally:
            forget(containerd, name)
            with contextlib.suppress(BenchError):
                containerd.ctr("images", "rm", "--sync", reference)

    def _client(self, containerd: Containerd, *arguments: str) -> None:
        command = [str(self._programs / "ctr-remote"), *containerd.command("images", *arguments)[1:]]
        call_in(command, {**os.environ, "CONTAINERD_ADDRESS": str(containerd.socket)}, timeout=1800.0)
