"""Engines without a server of their own: a small program in their environment, spoken to in JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from copydesk.cli.bench.contender import Counts
from copydesk.cli.bench.engine_process import EngineProcess, StartError
from copydesk.cli.bench.setting import Setting
from copydesk.cli.bench.workload import Prompt
from copydesk.loadtest import RequestFailedError

_START_SECONDS = 600.0
_LONGEST_LINE = 1 << 20


class DrivenContender:
    """A driver program and its requests under way."""

    def __init__(
        self, setting: Setting, python: Path, driver: str, arguments: Sequence[object], folder: Path
    ) -> None:
        self.setting = setting
        self.version = ""
        folder.mkdir(parents=True)
        script = str(resources.files(__package__).joinpath("drivers", f"{driver}_driver.py"))
        argv = [str(python), script, *map(str, arguments)]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("COPYDESK_")}
        self.process = EngineProcess(setting.name, argv, environ, folder / "log", piped=True)
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[list[int]]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def wait_ready(self) -> None:
        """Wait for its first line."""
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self.process.stdout)
        try:
            line = await asyncio.wait_for(reader.readline(), _START_SECONDS)
            self.version = str(msgspec.json.decode(line)["version"])
        except (TimeoutError, msgspec.DecodeError) as error:
            await asyncio.sleep(0.5)
            self.process.require_alive()
            raise self.process.failure(f"no greeting from its driver: {error!r}") from error
        self._reading = asyncio.create_task(self._read(reader))

    async def answer(self, prompt: Prompt) -> str:
        """Send the prompt's tokens; returns those of the answer, written as text."""
        number = next(self._numbers)
        request = {
            "id": number,
            "tokens": prompt.tokens,
            "max_tokens": prompt.max_tokens,
            "stop_ids": prompt.stop_ids,
        }
        answered: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answered
        try:
            self._send(request)
            return str(await answered)
        except (OSError, StartError) as error:
            raise RequestFailedError("driver_ended", str(error)) from error
        finally:
            del self._waiting[number]

    def _send(self, request: dict[str, Any]) -> None:
        self.process.require_alive()
        if self.process.stdin is None:
            raise BrokenPipeError("the driver has no input")
        self.process.stdin.write(msgspec.json.encode(request) + b"\n")
        self.process.stdin.flush()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            answer = msgspec.json.decode(line)
            if (waiting := self._waiting.get(answer["id"])) and not waiting.done():
                waiting.set_result(answer["tokens"])
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self.process.failure("its driver ended"))

    async def counts(self) -> Counts | None:
        """Neither engine tells how many passes it made."""
        return None

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
