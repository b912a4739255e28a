"""Keeps one child alive: starts it, pings it, kills it when it hangs, restarts it when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from copydesk.common.errors import CopydeskError
from copydesk.common.process import describe_exit
from copydesk.common.rpc import Channel, Pong, RpcError, UnixAddress
from copydesk.common.telemetry import get_logger
from copydesk.inference.pod.child import ChildSpec, ask_to_end, kill, start
from copydesk.inference.pod.failure import FailureNote
from copydesk.inference.pod.lifecycle import (
    PERMANENT_FAILURE,
    Backoff,
    is_hung,
    plan_restart,
)
from copydesk.inference.pod.vigil import UNTIMED, SilentError, Vigil

_log = get_logger(__name__)
_RETRY_INTERVAL = 0.05


class PermanentFailureError(CopydeskError):
    """A child that cannot start, and would not the next time either; `reason` is the line it left."""

    def __init__(self, child: str, reason: str) -> None:
        self.child = child
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Answer:
    """The child's last sign of life, and the digest of the weights that its greeting named."""

    pong: Pong
    digest: str


class Keeper:
    """Keeps the child that `spec` describes; `answer` is None while it does not run or has not answered yet.

    `on_change` is called whenever the child's state changes, `on_restart` with its name at each restart.
    `interval` is the time between pings in seconds.
    """

    def __init__(
        self,
        spec: ChildSpec,
        *,
        note: FailureNote,
        token: str,
        interval: float,
        on_change: Callable[[], None],
        on_restart: Callable[[str], None],
        policy: Backoff | None = None,
    ) -> None:
        self.spec = spec
        self.answer: Answer | None = None
        self._note = note
        self._token = token
        self._interval = interval
        self._on_change = on_change
        self._on_restart = on_restart
        self._policy = policy or Backoff()
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process is not None else None

    async def run(self) -> None:
        """Keep the child until `stop`; raises `PermanentFailureError` when there is no point in restarting it."""
        try:
            await self._keep()
        finally:
            self._ended.set()

    async def stop(self, grace: float) -> None:
        """Ask the child to end, wait up to `grace` seconds, then kill it; no restart follows."""
        self._stopping.set()
        if self._process is not None:
            ask_to_end(self._process)
        try:
            async with asyncio.timeout(grace):
                await self._ended.wait()
        except TimeoutError:
            _log.warning("child_killed", child=self.spec.name, reason="did not end in time")
            self.kill()

    def kill(self) -> None:
        """Kill the child now, if it runs."""
        if self._process is not None:
            kill(self._process)

    async def _keep(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            returncode = await self._live()
            if self._stopping.is_set():
                return
            if returncode == PERMANENT_FAILURE:
                raise PermanentFailureError(self.spec.name, self._note.read() or self._unexplained())
            lived = time.monotonic() - began
            restart = plan_restart(self._policy, failures=failures, lived=lived, chance=random.random())
            failures = restart.failures
            _log.error(
                "child_died",
                child=self.spec.name,
                how=describe_exit(returncode),
                lived_s=round(lived, 3),
                deaths_in_a_row=failures,
                restart_in_s=round(restart.delay, 3),
            )
            self._on_restart(self.spec.name)
            await self._pause(restart.delay)

    def _unexplained(self) -> str:
        return f"{self.spec.name}: exit code {PERMANENT_FAILURE}; see its output above"

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def _live(self) -> int:
        try:
            process = self._process = await start(self.spec)
        except OSError as error:
            _log.error("child_not_started", child=self.spec.name, error=str(error))
            return 1
        _log.info("child_started", child=self.spec.name, pid=process.pid)
        if self._stopping.is_set():
            ask_to_end(process)
        ended = asyncio.create_task(process.wait())
        watch = asyncio.create_task(self._watch(process))
        try:
            await asyncio.wait({ended, watch}, return_when=asyncio.FIRST_COMPLETED)
            if watch.done():
                # It ends by itself only once it has killed the child; what else it raised must not go unseen.
                watch.result()
            return await ended
        finally:
            kill(process)
            for task in (ended, watch):
                task.cancel()
            await asyncio.gather(ended, watch, return_exceptions=True)
            self._process = None
            self._heard(None)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        patience, answered = self.spec.patience, False
        vigil = Vigil(patience.answer)
        try:
            while True:
                try:
                    self._heard(await vigil.attend(self._ask(), patience.limit(answered=answered)))
                except (RpcError, SilentError) as error:
                    _log.debug("child_silent", child=self.spec.name, error=str(error))
                    if is_hung(patience, answered=answered, silent=vigil.silent):
                        break
                    await vigil.pause(min(self._interval, _RETRY_INTERVAL))
                else:
                    answered = True
                    # Nobody asks meanwhile, so it is no silence of the child's, however long.
                    await asyncio.sleep(self._interval)
            _log.error("child_killed", child=self.spec.name, reason="left pings unanswered")
            kill(process)
        finally:
            channel, self._channel = self._channel, None
            if channel is not None:
                await channel.close()

    async def _ask(self) -> Answer:
        if self._channel is None or self._channel.closed:
            self._channel = await Channel.open(
                UnixAddress(self.spec.socket), name="supervisor", token=self._token, timeout=UNTIMED
            )
        return Answer(await self._channel.ping(UNTIMED), self._channel.peer.digest)

    def _heard(self, answer: Answer | None) -> None:
        before, self.answer = self.answer, answer
        if (before and before.pong.state) != (answer and answer.pong.state):
            self._on_change()
