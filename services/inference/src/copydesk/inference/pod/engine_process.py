"""The engine process: holds the weights, steps the engine, answers the workers over a unix socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

from copydesk.common.messages import EndpointState
from copydesk.common.process import run_until_signal, settle_memory
from copydesk.common.rpc import PROTOCOL_VERSION, Hello, Load, RpcServer, UnixAddress
from copydesk.common.telemetry import get_logger
from copydesk.inference.engine import AnyEngine, Caching, Engine, LoopEngine, SelfStepping
from copydesk.inference.pod.engine_calls import EngineCalls
from copydesk.inference.pod.engine_loading import load_any_engine
from copydesk.inference.pod.event_loop_steps import SelfSteppingLoop
from copydesk.inference.pod.loop_engine_steps import LoopEngineSteps
from copydesk.inference.pod.metrics import EngineMetrics, TaskGauge
from copydesk.inference.pod.step_loop import StepLoop, Steps
from copydesk.inference.settings import InferenceSettings

_log = get_logger(__name__)
_STOP_SECONDS = 2.0
_CRASHED = 70  # EX_SOFTWARE of sysexits.h; anything but 0 and 2 lets the supervisor restart the engine


async def serve_engine(
    settings: InferenceSettings,
    socket: str,
    load: Callable[[InferenceSettings], tuple[Engine | LoopEngine, str]] = load_any_engine,
    *,
    name: str = "engine-0",
) -> int:
    """Load the model, then answer on `socket` until SIGTERM; return the exit code.

    The socket appears only once the model is loaded: whoever gets an answer there has a working engine. Raises
    `CannotStartError`.
    """
    loop = asyncio.get_running_loop()
    engine, digest = await asyncio.to_thread(load, settings)
    if isinstance(engine, LoopEngine):
        await engine.open()
    crashed: asyncio.Future[Exception] = loop.create_future()
    settle_memory()
    metrics = EngineMetrics(name)
    steps = _steps(engine, loop, crashed.set_result, metrics.step_seconds.observe, settings)
    server = RpcServer(
        EngineCalls(engine, steps, metrics).handle,
        hello=lambda: _hello(settings, engine, digest),
        load=_watched_load(engine, metrics),
        token=settings.rpc_token.get_secret_value(),
    )
    steps.start()
    await server.start(UnixAddress(socket))
    telling = asyncio.create_task(TaskGauge(name).keep_told())
    _log.info("engine_ready", digest=digest, capacity=engine.capacity, context=engine.context)
    code = await _run(steps, crashed, step_limit=settings.step_timeout_ms / 1000)
    telling.cancel()
    await server.close()
    steps.stop(_STOP_SECONDS)
    return code


def _steps(
    engine: Engine | LoopEngine,
    loop: asyncio.AbstractEventLoop,
    on_crash: Callable[[Exception], None],
    on_step: Callable[[float], object],
    settings: InferenceSettings,
) -> Steps:
    if isinstance(engine, LoopEngine):
        return LoopEngineSteps(engine, loop=loop, on_crash=on_crash, on_step=on_step)
    if isinstance(engine, SelfStepping):
        return SelfSteppingLoop(engine, loop=loop, on_crash=on_crash, on_step=on_step)
    return StepLoop(engine, loop=loop, on_crash=on_crash, on_step=on_step, asynchronous=settings.asynchronous)


async def _run(steps: Steps, crashed: asyncio.Future[Exception], *, step_limit: float) -> int:
    watch = asyncio.create_task(_watch_steps(steps, step_limit))
    signalled = asyncio.create_task(run_until_signal())
    ends: set[asyncio.Future[Any]] = {crashed, signalled}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    watch.cancel()
    signalled.cancel()
    if not crashed.done():
        return 0
    _log.error("engine_crashed", exc_info=crashed.result())
    return _CRASHED


def _watched_load(engine: AnyEngine, metrics: EngineMetrics) -> Callable[[], Load]:
    """Return the engine's `load`, which pings ask for four times a second, and with it the use of its cache."""
    if not isinstance(engine, Caching):
        return engine.load

    def load() -> Load:
        metrics.cached(engine.cache_use())
        return engine.load()

    return load


def _hello(settings: InferenceSettings, engine: AnyEngine, digest: str) -> Hello:
    return Hello(
        PROTOCOL_VERSION,
        peer="engine",
        model=settings.model,
        digest=digest,
        capacity=engine.capacity,
        state=EndpointState.READY,
    )


async def _watch_steps(steps: Steps, limit: float) -> None:
    while True:
        await asyncio.sleep(limit / 10)
        if steps.step_age() > limit:
            _log.error("engine_hung", step_s=round(steps.step_age(), 1), limit_s=limit)
            # The thread cannot be ended, and an orderly exit would wait for what it holds.
            os._exit(_CRASHED)
