"""A worker process: answers gateways, tokenises, and leaves the rest to the engine."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from copydesk.common.process import run_until_signal
from copydesk.common.rpc import PROTOCOL_VERSION, Hello, Load, RpcServer, UnixAddress
from copydesk.common.telemetry import get_logger
from copydesk.inference.checkpoint.errors import CheckpointError
from copydesk.inference.checkpoint.manifest import read_digest
from copydesk.inference.completion import Completer
from copydesk.inference.correction import CorrectionSetupError, Corrector, TextTokenizer, read_model_files
from copydesk.inference.pod.completions import Completions
from copydesk.inference.pod.corrections import Corrections
from copydesk.inference.pod.engine_link import EngineLink
from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.pod.metrics import WorkerMetrics
from copydesk.inference.pod.tasks import Tasks
from copydesk.inference.settings import InferenceSettings

_log = get_logger(__name__)


async def serve_worker(settings: InferenceSettings, listener: socket.socket, runtime: Path, name: str) -> int:
    """Answer gateways on `listener` until SIGTERM, then drain; return the exit code.

    The supervisor gets its pings answered on a unix socket, where draining does not reach. Raises
    `CannotStartError`.
    """
    token = settings.rpc_token.get_secret_value()
    link = EngineLink(
        str(runtime / "engine.sock"),
        name=name,
        token=token,
        refresh=settings.report_interval_ms / 1000,
        patience=settings.answer_timeout_ms / 1000,
    )
    tasks = _tasks(settings, link)
    # A gateway is greeted once, mostly while the engine still loads: the greeting must name the weights by then.
    digest = _digest(settings)

    def hello() -> Hello:
        return Hello(
            PROTOCOL_VERSION,
            peer=name,
            model=settings.model,
            digest=link.digest or digest,
            capacity=link.load.capacity,
            state=link.state,
        )

    def load() -> Load:
        return link.load

    gateways = RpcServer(tasks.handle, hello=hello, load=load, token=token)
    supervisor = RpcServer(tasks.handle, hello=hello, load=load, token=token)
    connecting = asyncio.create_task(link.run())
    await supervisor.start(UnixAddress(str(runtime / f"{name}.sock")))
    await gateways.start(listener)
    _log.info("worker_ready")
    await run_until_signal()
    drained = await gateways.drain(settings.drain_timeout_ms / 1000)
    _log.info("worker_drained", complete=drained, unanswered=gateways.in_flight)
    await gateways.close()
    await supervisor.close()
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    return 0


def _digest(settings: InferenceSettings) -> str:
    try:
        return read_digest(settings.model_dir)
    except (CheckpointError, OSError) as error:
        raise CannotStartError("MODEL_DIR", str(error)) from error


def _tasks(settings: InferenceSettings, link: EngineLink) -> Tasks:
    directory, context = settings.model_dir, settings.context
    try:
        tokenizer = TextTokenizer(directory)
        corrector = Corrector.load(directory, context=context, tokenizer=tokenizer)
        completer = Completer(read_model_files(directory), tokenizer, context=context)
    except (CorrectionSetupError, OSError) as error:
        raise CannotStartError("MODEL_DIR", str(error)) from error
    return Tasks(Corrections(corrector, link), Completions(completer, link), WorkerMetrics())
