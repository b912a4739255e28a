"""`python -m copydesk.eds`: run endpoint discovery until a signal ends it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from copydesk.common.bus import Bus, BusUrlError
from copydesk.common.process import run, run_until_signal
from copydesk.common.settings import EXIT_BAD_SETTINGS, load_settings, take_no_arguments
from copydesk.common.telemetry import configure_logging, get_logger, serve_metrics
from copydesk.eds.endpoint_file import EndpointFileError
from copydesk.eds.heartbeat import HeartbeatSource
from copydesk.eds.metrics import Metrics
from copydesk.eds.service import Service
from copydesk.eds.settings import EdsSettings, SourceKind
from copydesk.eds.source import Source
from copydesk.eds.static import StaticSource

_log = get_logger("copydesk.eds")


def make_source(settings: EdsSettings, bus: Bus, metrics: Metrics) -> Source:
    """Make the source that the settings ask for."""
    if settings.source is SourceKind.HEARTBEAT or settings.static_file is None:
        return HeartbeatSource(bus)
    return StaticSource(
        settings.static_file, poll=settings.static_poll_ms / 1000, on_error=metrics.static_file_broken
    )


async def serve(settings: EdsSettings) -> None:
    """Run until SIGTERM or SIGINT; raise `BusUrlError` or `EndpointFileError` if that cannot begin."""
    metrics = Metrics()
    bus = await Bus.connect(settings.nats_url, name="eds", token=settings.nats_token.get_secret_value() or None)
    try:
        epoch = int(time.time() * 1000)
        service = Service(settings, bus, make_source(settings, bus, metrics), metrics, epoch=epoch)
        _log.info("eds_started", source=settings.source.value, epoch=epoch)
        await run_until_signal(service.run())
    finally:
        await bus.close()
    _log.info("eds_stopped")


def main(arguments: Sequence[str] = ()) -> int:
    """Start from the environment; return the exit code, 2 for settings with which nothing can begin."""
    purpose = "Tell gateways which pods there are, until SIGTERM."
    take_no_arguments(EdsSettings, arguments, program="python -m copydesk.eds", purpose=purpose)
    settings = load_settings(EdsSettings)
    configure_logging("eds", level=settings.log_level)
    try:
        exporter = serve_metrics(settings.metrics_port, settings.metrics_host)
    except OSError as error:
        return _refuse("METRICS_PORT", f"{settings.metrics_host}:{settings.metrics_port}: {error.strerror}")
    try:
        run(serve(settings))
    except BusUrlError as error:
        return _refuse("NATS_URL", str(error))
    except EndpointFileError as error:
        return _refuse("STATIC_FILE", str(error))
    finally:
        if exporter is not None:
            exporter.close()
    return 0


def _refuse(key: str, problem: str) -> int:
    print(f"COPYDESK_EDS_{key}: {problem}", file=sys.stderr)
    return EXIT_BAD_SETTINGS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
