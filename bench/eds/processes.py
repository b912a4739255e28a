"""Processes that talk by lines: started, waited for, asked, ended, and what they use of the machine."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import psutil

END_SECONDS = 5.0
SAMPLE_SECONDS = 0.25
MEBIBYTE = 2**20


class PartError(Exception):
    """A part of the measurement failed: it carries its name and the end of what it said."""

    def __init__(self, name: str, said: str) -> None:
        self.name = name
        self.said = said
        super().__init__(f"{name} failed:\n{said}")


class Part:
    """A Python module of ours as a process, which answers lines by lines."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._log = log

    def read(self) -> str:
        """Return its next line; raise `PartError` if it has ended."""
        line = self._stream(self._process.stdout).readline()
        if not line:
            raise PartError(self.name, self._log.read_text()[-2_000:])
        return line

    def say(self, line: str) -> None:
        """Write it a line."""
        stream = self._stream(self._process.stdin)
        stream.write(f"{line}\n")
        stream.flush()

    def ask(self, line: str) -> str:
        """Write it a line, and return its answer."""
        self.say(line)
        return self.read()

    def _stream(self, stream: IO[str] | None) -> IO[str]:
        assert stream is not None
        return stream


@contextlib.contextmanager
def part(
    module: str, *arguments: object, directory: Path, environ: Mapping[str, str] | None = None
) -> Iterator[Part]:
    """Run `python -m MODULE ARGUMENTS...`, and end it."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    log = directory / f"{module}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(environ or {})},
        )
    try:
        yield Part(module, process, log)
    finally:
        _end(process)


@contextlib.contextmanager
def nats(directory: Path) -> Iterator[str]:
    """Run a nats-server, and yield its URL."""
    port = free_port()
    beside = Path(sys.executable).parent / "nats-server"
    binary = str(beside) if beside.exists() else "nats-server"
    command = [binary, "-a", "127.0.0.1", "-p", str(port), "-l", str(directory / "nats.log")]
    process = subprocess.Popen(command)
    try:
        wait_for_port("nats-server", port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        _end(process)


def free_port() -> int:
    """Return a loopback port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for_port(name: str, port: int, seconds: float = 20.0) -> None:
    """Return once somebody listens on `port`; raise `PartError` if nobody does in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise PartError(name, f"nobody listens on port {port}")


class Usage:
    """What a process uses between `begin` and `end`: CPU seconds of its own, and the most memory it had (RSS)."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._began = self._cpu_began = 0.0
        self._most = 0

    def begin(self) -> None:
        """Begin to count."""
        self._began, self._cpu_began = time.monotonic(), self._cpu()
        self._thread.start()

    def end(self) -> tuple[float, float]:
        """Return the CPU cores that it used on average, and its peak memory in MiB."""
        cores = (self._cpu() - self._cpu_began) / (time.monotonic() - self._began)
        self._stop.set()
        self._thread.join()
        return cores, self._most / MEBIBYTE

    def _cpu(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._most = max(self._most, self._process.memory_info().rss)


def _end(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
