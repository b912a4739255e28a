"""The supervisor: a light process that owns the port, keeps the children, and speaks for the pod.

It loads no model and no torch: what may crash or run out of memory runs in children, which it can replace while
the port, and the connections that wait on it, stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from functools import partial

from copydesk.common.bus import Bus, BusUrlError
from copydesk.common.messages import EndpointState
from copydesk.common.process import run_until_signal
from copydesk.common.rpc.frames import Load
from copydesk.common.task_gauge import TaskCollector
from copydesk.common.telemetry import get_logger
from copydesk.common.tls import ClientTls, Credentials, TlsError, expiry_watched, server_tls
from copydesk.inference.pod.child import ChildSpec
from copydesk.inference.pod.doorman import Door, Doorman
from copydesk.inference.pod.engine_choice import total_load
from copydesk.inference.pod.engine_start import EngineStart, engine_start
from copydesk.inference.pod.failure import CannotStartError, FailureNote
from copydesk.inference.pod.inbox import inbox
from copydesk.inference.pod.keeper import Keeper
from copydesk.inference.pod.lifecycle import Patience, pod_state
from copydesk.inference.pod.listener import advertised_host, listen
from copydesk.inference.pod.metrics import MULTIPROCESS_VARIABLE, PodMetrics
from copydesk.inference.pod.reports import PodIdentity, PodStatus, Reporter, pod_name
from copydesk.inference.pod.runtime import TALLY, RuntimeDirectory
from copydesk.inference.pod.tally import Tally
from copydesk.inference.settings import ENVIRONMENT_PREFIX, InferenceSettings

_log = get_logger(__name__)
_END_SECONDS = 5.0


def identity(settings: InferenceSettings, port: int, started_at: float) -> PodIdentity:
    """Return who the pod is, now that its port is known."""
    return PodIdentity(
        model=settings.model,
        pod=pod_name(settings.pod, port),
        zone=settings.zone,
        host=advertised_host(settings.host, settings.advertise_host),
        port=settings.advertise_port or port,
        started_at=started_at,
    )


def engine_spec(
    settings: InferenceSettings, runtime: RuntimeDirectory, index: int, start: EngineStart
) -> ChildSpec:
    """Describe an engine process; its threads are set before any library that counts cores is loaded."""
    name = settings.engine_names()[index]
    threads = str(settings.engine_threads(index))
    return ChildSpec(
        name=name,
        arguments=("engine", f"--runtime={runtime.path}", f"--name={name}", f"--index={index}"),
        socket=runtime.socket(name),
        patience=_patience(settings),
        environment={
            f"{ENVIRONMENT_PREFIX}THREADS": threads,
            f"{ENVIRONMENT_PREFIX}DEVICE": settings.engine_device(index),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # By default a thread spins for milliseconds on one that another process keeps off its core, at every
            # operator: beside a busy process, steps took tens of times as long, and with this about twice as long.
            "GOMP_SPINCOUNT": "3000",
            MULTIPROCESS_VARIABLE: str(runtime.metrics),
            **runtime.variables,
            **start.variables(settings, index, os.environ),
        },
        python=start.python,
    )


def worker_spec(
    settings: InferenceSettings, runtime: RuntimeDirectory, index: int, inbox_fd: int, returns_fd: int
) -> ChildSpec:
    """Describe one worker; it tokenises sentence by sentence, so that threads of the tokenizer gain nothing."""
    name = f"worker-{index}"
    return ChildSpec(
        name=name,
        arguments=(
            "worker",
            f"--runtime={runtime.path}",
            f"--name={name}",
            f"--index={index}",
            f"--inbox-fd={inbox_fd}",
            f"--returns-fd={returns_fd}",
        ),
        socket=runtime.socket(name),
        patience=_patience(settings),
        environment={
            "TOKENIZERS_PARALLELISM": "false",
            MULTIPROCESS_VARIABLE: str(runtime.metrics),
            **runtime.variables,
        },
        inherited=(inbox_fd, returns_fd),
    )


def _patience(settings: InferenceSettings) -> Patience:
    return Patience(settings.start_timeout_ms / 1000, settings.answer_timeout_ms / 1000)


class Pod:
    """The children of one pod and what is known of them."""

    def __init__(
        self,
        settings: InferenceSettings,
        listener: socket.socket,
        runtime: RuntimeDirectory,
        metrics: PodMetrics,
        reporter: Reporter,
        start: EngineStart,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._metrics = metrics
        self._reporter = reporter
        self._changed = asyncio.Event()
        self._draining = False
        self._logged: EndpointState | None = None
        self._engines = [
            self._keeper(engine_spec(settings, runtime, index, start), self._changed.set)
            for index in range(settings.engines)
        ]
        self._returns, returned = inbox()
        tally = Tally(runtime.path / TALLY, settings.workers)
        doors = [Door(index, *inbox(), tally) for index in range(settings.workers)]
        # What was negotiated under TLS is the worker's alone: its connections cannot be handed on.
        self._doorman = Doorman(listener, doors, returned, moves=settings.rpc_tls_files() is None)
        self._workers = [self._worker(index, door) for index, door in enumerate(doors)]

    def _worker(self, index: int, door: Door) -> Keeper:
        spec = worker_spec(self._settings, self._runtime, index, door.receiver.fileno(), self._returns.fileno())
        return self._keeper(spec, partial(self._on_worker_change, index))

    def _keeper(self, spec: ChildSpec, on_change: Callable[[], None]) -> Keeper:
        keeper = Keeper(
            spec,
            note=FailureNote(self._runtime.path, spec.name),
            token=self._settings.rpc_token.get_secret_value(),
            interval=self._settings.report_interval_ms / 1000,
            on_change=on_change,
            on_restart=self._metrics.restarted,
        )
        self._metrics.watch_memory(spec.name, lambda: keeper.pid)
        return keeper

    def _on_worker_change(self, index: int) -> None:
        self._doorman.answering(index, self._workers[index].answer is not None)
        self._changed.set()

    def status(self) -> PodStatus:
        """Return the pod's state, load and digest, as the children last told them."""
        engines = [keeper.answer for keeper in self._engines if keeper.answer is not None]
        state = pod_state(
            draining=self._draining,
            engine_answers=bool(engines),
            workers=[worker.answer.pong.state if worker.answer else None for worker in self._workers],
        )
        if not engines:
            return PodStatus(state, Load(capacity=self._settings.slots), "")
        return PodStatus(state, total_load(engine.pong.load for engine in engines), engines[0].digest)

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain for as long as the settings allow.

        A second signal ends the process at once, and the children with it. Raises `PermanentFailureError`, with
        every child ended, when one of them cannot start.
        """
        keepers = [asyncio.create_task(keeper.run()) for keeper in (*self._engines, *self._workers)]
        tasks = {*keepers, asyncio.create_task(self._report())}
        signalled = asyncio.create_task(run_until_signal())
        try:
            done, _ = await asyncio.wait({*tasks, signalled}, return_when=asyncio.FIRST_COMPLETED)
            for task in done & tasks:
                task.result()
            await self._drain()
        finally:
            await self._end()
            for task in (*tasks, signalled):
                task.cancel()
            await asyncio.gather(*tasks, signalled, return_exceptions=True)

    async def _drain(self) -> None:
        self._draining = True
        self._changed.set()
        # Connections must fail now rather than wait for a worker that will not come.
        self._doorman.close()
        grace = self._settings.drain_timeout_ms / 1000 + _END_SECONDS
        await asyncio.gather(*(worker.stop(grace) for worker in self._workers))

    async def _end(self) -> None:
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*(worker.stop(_END_SECONDS) for worker in self._workers))
        await asyncio.gather(*(engine.stop(_END_SECONDS) for engine in self._engines))

    async def _report(self) -> None:
        interval = self._settings.report_interval_ms / 1000
        while True:
            self._changed.clear()
            status = self.status()
            if status.state is not self._logged:
                _log.info("pod_state", state=status.state.value, digest=status.digest)
                self._logged = status.state
            self._metrics.observe(status.load, status.state)
            self._reporter.publish(status)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await self._changed.wait()


def _tls(settings: InferenceSettings) -> tuple[Credentials | None, ClientTls | None]:
    """Check the files before any child does; the workers read those of RPC for themselves."""
    try:
        files = settings.rpc_tls_files()
        return (server_tls(files)[0] if files else None), settings.nats_tls()
    except TlsError as error:
        raise CannotStartError(error.variable, f"{error.path}: {error.problem}") from error


async def supervise(settings: InferenceSettings) -> None:
    """Run a pod until SIGTERM or SIGINT; raises `CannotStartError` and `PermanentFailureError`."""
    rpc_tls, nats_tls = _tls(settings)
    with listen(settings.host, settings.port) as listener, RuntimeDirectory() as runtime:
        runtime.keep_secrets(settings, os.environ)
        start = await asyncio.to_thread(engine_start, settings, runtime.path, os.environ)
        who = identity(settings, listener.getsockname()[1], time.time())
        metrics = PodMetrics(runtime.metrics)
        metrics.watch_memory("supervisor", os.getpid)
        metrics.registry.register(TaskCollector("inference_supervisor"))
        status = await metrics.serve(settings.host, settings.metrics_port)
        try:
            token = settings.nats_token.get_secret_value() or None
            bus = await Bus.connect(settings.nats_url, name=f"pod {who.pod}", token=token, tls=nats_tls)
        except BusUrlError as error:
            raise CannotStartError("NATS_URL", str(error)) from error
        _log.info("pod_listening", pod=who.pod, model=who.model, host=who.host, port=who.port)
        credentials = [*([rpc_tls] if rpc_tls else []), *([nats_tls.credentials] if nats_tls else [])]
        try:
            async with expiry_watched("inference", credentials, metrics.registry):
                await Pod(settings, listener, runtime, metrics, Reporter(bus, who), start).run()
        finally:
            await bus.close()
            if status is not None:
                await status.close()
    _log.info("pod_ended", pod=who.pod)
