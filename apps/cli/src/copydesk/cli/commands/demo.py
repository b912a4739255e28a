"""`copydesk demo`: a fleet on free ports, a handful of corrections as JSON lines, and down again."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path

import msgspec

from copydesk.cli import terminal
from copydesk.cli.api import Timed, correct_async, open_async
from copydesk.cli.commands.model import PreparationError
from copydesk.cli.commands.up import CannotStartError, UpRequest, explain, resolve
from copydesk.cli.fleet.plan import HOST
from copydesk.cli.fleet.ports import free_port
from copydesk.cli.fleet.report import ConsoleReport
from copydesk.cli.fleet.session import run_fleet
from copydesk.cli.fleet.state import StateLock

SENTENCES = (
    "She go to school every day.",
    "I has two brother and one sister.",
    "Their is a lot of peoples in the street.",
    "He dont like coffee, but he drink it every morning.",
    "The weather is nice today.",
    "Yesterday I go to the cinema. The film were very interesting.",
)


def demo(pods: int, model: Path | None, dtype: str) -> int:
    """Run the demonstration; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="copydesk-demo-") as folder, StateLock(Path(folder)) as lock:
        request = UpRequest(
            pods=pods,
            model=model,
            port=free_port(HOST, random.Random()),
            dtype=dtype,
            state_dir=lock.state_dir,
            as_json=False,
            show=False,
        )
        try:
            options = resolve(request, lock.state_dir)
        except (CannotStartError, PreparationError) as error:
            terminal.say_error(str(error), error.hint)
            return 2
        report = ConsoleReport(terminal.LastingConsole(stderr=True, highlight=False))
        return explain(asyncio.run(run_fleet(options, report, _correct_all, serve=False)))


async def _correct_all(url: str) -> None:
    async with open_async(url) as client:
        for text in SENTENCES:
            sys.stdout.write(_line(text, await correct_async(client, text)) + "\n")
            sys.stdout.flush()


def _line(text: str, timed: Timed) -> str:
    correction = timed.correction
    row = {
        "text": text,
        "corrected": correction.corrected,
        "edits": correction.edits,
        "latency_ms": timed.latency_ms,
    }
    return msgspec.json.encode(row).decode()
