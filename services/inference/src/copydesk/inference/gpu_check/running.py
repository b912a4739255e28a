"""Runs parts in processes of their own: one that crashes, hangs or breaks the GPU's context stops no other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from copydesk.inference.gpu_check.parts import Part, Request
from copydesk.inference.gpu_check.rows import Row, read_row

_END_OF_LOG = 300


Run = Callable[[Part, Request, float], Iterator[Row]]
"""Runs a part for so many seconds at the most."""


def run_all(
    parts: Sequence[Part],
    request: Request,
    seconds: float,
    run: Run,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Row]:
    """Run parts one after the other, each for its own seconds at the most, and together for no more than told."""
    end = clock() + seconds
    for part in parts:
        left = min(part.seconds, end - clock())
        if left <= 1.0:
            yield Row(part.name, "all", ok=False, note="skipped: no time was left")
            continue
        yield from run(part, request, left)


def run_here(part: Part, request: Request, seconds: float) -> Iterator[Row]:
    """Run a part in this process, however long it takes; what breaks it is its last row."""
    try:
        yield from part.run(request)
    except Exception as error:
        yield Row(part.name, "all", ok=False, note=f"{type(error).__name__}: {error}"[:_END_OF_LOG])


def run_apart(part: Part, request: Request, seconds: float) -> Iterator[Row]:
    """Run a part in a process, and hand its rows on as they come; what it started ends with it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "copydesk.inference.gpu_check", *_arguments(part, request)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    late = threading.Event()
    errors: list[str] = []

    def stop() -> None:
        late.set()
        _kill(process)

    alarm = threading.Timer(seconds, stop)
    listener = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
    with process:
        alarm.start()
        listener.start()
        try:
            for line in process.stdout or ():
                row = read_row(line)
                if row is not None:
                    yield row
            code = process.wait()
        finally:
            alarm.cancel()
            _kill(process)
            listener.join()
    if late.is_set():
        yield Row(part.name, "the rest", ok=False, note=f"stopped after {seconds:.0f} s")
    elif code:
        yield Row(part.name, "the rest", ok=False, note=f"ended with {code}: {''.join(errors)[-_END_OF_LOG:]}")


def _arguments(part: Part, request: Request) -> list[str]:
    arguments = ["--part", part.name, "--device", request.device, "--work", str(request.work)]
    arguments += ["--quick"] if request.quick else []
    arguments += ["--model", str(request.model)] if request.model else []
    return arguments + (["--sentences", str(request.sentences)] if request.sentences else [])


def _kill(process: subprocess.Popen[str]) -> None:
    """With all that it started, which is in the process group that it leads."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
