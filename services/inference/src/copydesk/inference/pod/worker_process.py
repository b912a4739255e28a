"""A worker process: answers gateways, tokenises, and leaves the rest to the engine."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from copydesk.common.process import run_until_signal, settle_memory
from copydesk.common.rpc import PROTOCOL_VERSION, Hello, Load, RpcServer, UnixAddress
from copydesk.common.telemetry import get_logger
from copydesk.common.tls import TlsError, server_tls
from copydesk.inference.completion import Completer
from copydesk.inference.correction import CorrectionSetupError, Corrector, TextTokenizer, read_model_files
from copydesk.inference.pod.completions import Completions
from copydesk.inference.pod.corrections import Corrections
from copydesk.inference.pod.engine_link import EngineLink
from copydesk.inference.pod.engine_loading import checked_digest
from copydesk.inference.pod.engines import Engines
from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.pod.inbox import Receiver, Sender
from copydesk.inference.pod.metrics import TaskGauge, WorkerMetrics
from copydesk.inference.pod.reception import Reception
from copydesk.inference.pod.runtime import TALLY, socket_path
from copydesk.inference.pod.tally import Tally
from copydesk.inference.pod.tasks import Tasks
from copydesk.inference.settings import InferenceSettings

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Post:
    """A worker's place in the pod: where connections come from, and where they go back to."""

    name: str
    index: int
    runtime: Path
    inbox: Receiver
    returns: Sender


async def serve_worker(settings: InferenceSettings, post: Post) -> int:
    """Answer the gateways whose connections come until SIGTERM, then drain; return the exit code.

    The supervisor gets its pings answered on a unix socket, where draining does not reach. Raises
    `CannotStartError`.
    """
    token = settings.rpc_token.get_secret_value()
    engines = _engines(settings, post, token)
    tasks = _tasks(settings, engines)
    # A gateway is greeted once, mostly while the engine still loads: the greeting must name the weights by then.
    digest = checked_digest(settings)

    def hello() -> Hello:
        return Hello(
            PROTOCOL_VERSION,
            peer=post.name,
            model=settings.model,
            digest=engines.digest or digest,
            capacity=engines.load.capacity,
            state=engines.state,
        )

    def load() -> Load:
        return engines.load

    gateways = RpcServer(tasks.handle, hello=hello, load=load, token=token, tls=_tls(settings))
    supervisor = RpcServer(tasks.handle, hello=hello, load=load, token=token)
    reception = _reception(settings, gateways, post)
    beside = [asyncio.create_task(engines.run()), asyncio.create_task(TaskGauge(post.name).keep_told())]
    settle_memory()
    reception.open()
    await supervisor.start(UnixAddress(socket_path(post.runtime, post.name)))
    _log.info("worker_ready")
    await run_until_signal()
    drained = await gateways.drain(settings.drain_timeout_ms / 1000)
    _log.info("worker_drained", complete=drained, unanswered=gateways.in_flight)
    reception.close()
    await gateways.close()
    await supervisor.close()
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    return 0


def _tls(settings: InferenceSettings) -> ssl.SSLContext | None:
    files = settings.rpc_tls_files()
    try:
        return server_tls(files)[1] if files else None
    except TlsError as error:
        raise CannotStartError(error.variable, f"{error.path}: {error.problem}") from error


def _reception(settings: InferenceSettings, gateways: RpcServer, post: Post) -> Reception:
    tally = Tally(post.runtime / TALLY, settings.workers)
    return Reception(
        gateways,
        post.inbox,
        post.returns,
        on_taken=partial(tally.count_taken, post.index),
        on_closed=partial(tally.count_closed, post.index),
    )


def _engines(settings: InferenceSettings, post: Post, token: str) -> Engines:
    return Engines(
        [
            EngineLink(
                socket_path(post.runtime, engine),
                name=post.name,
                token=token,
                refresh=settings.report_interval_ms / 1000,
                queue=settings.queue,
                patience=settings.answer_timeout_ms / 1000,
            )
            for engine in settings.engine_names()
        ]
    )


def _tasks(settings: InferenceSettings, engines: Engines) -> Tasks:
    directory, context = settings.model_dir, settings.context
    try:
        tokenizer = TextTokenizer(directory)
        corrector = Corrector.load(directory, context=context, tokenizer=tokenizer)
        completer = Completer(read_model_files(directory), tokenizer, context=context)
    except (CorrectionSetupError, OSError) as error:
        raise CannotStartError("MODEL_DIR", str(error)) from error
    return Tasks(Corrections(corrector, engines), Completions(completer, engines), WorkerMetrics())
