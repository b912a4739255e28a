"""`python -m copydesk.eds`: run endpoint discovery until a signal ends it."""

from __future__ import annotations

import sys
import time

from copydesk.common.bus import Bus, BusUrlError
from copydesk.common.process import run, run_until_signal
from copydesk.common.settings import EXIT_BAD_SETTINGS, load_settings
from copydesk.common.telemetry import configure_logging, get_logger, serve_metrics
from copydesk.eds.endpoint_file import EndpointFileError
from copydesk.eds.metrics import Metrics
from copydesk.eds.service import Service
from copydesk.eds.settings import EdsSettings
from copydesk.eds.sources import make_source

_log = get_logger("copydesk.eds")


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


def main() -> int:
    """Start from the environment; return the exit code, 2 for settings with which nothing can begin."""
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
    sys.exit(main())
