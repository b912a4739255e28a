"""`python -m copydesk.autoscaler`: say how many pods there shall be until a signal ends it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from prometheus_client import REGISTRY

from copydesk.autoscaler.actuators import make_actuator
from copydesk.autoscaler.log_entry import DRY, LIVE
from copydesk.autoscaler.log_writer import LogWriter
from copydesk.autoscaler.memory import Memory
from copydesk.autoscaler.metrics import Metrics
from copydesk.autoscaler.pilot import Pilot
from copydesk.autoscaler.plan import Plan, PlanError
from copydesk.autoscaler.plans import load_plans
from copydesk.autoscaler.service import Pace, Service
from copydesk.autoscaler.settings import ActuatorKind, AutoscalerSettings
from copydesk.autoscaler.status_paths import status_paths
from copydesk.common.bus import Bus, BusUrlError
from copydesk.common.process import run, run_until_signal
from copydesk.common.settings import load_settings, refuse_setting, take_no_arguments
from copydesk.common.status_server import StatusPortError, StatusServer
from copydesk.common.task_gauge import tasks_counted
from copydesk.common.telemetry import configure_logging, get_logger
from copydesk.common.tls import TlsError, expiry_watched
from copydesk.common.tls.settings import refuse_file

_log = get_logger("copydesk.autoscaler")


async def serve(settings: AutoscalerSettings, plans: Sequence[Plan]) -> None:
    """Run until SIGTERM or SIGINT; raise the error of whatever cannot begin."""
    metrics = Metrics()
    name = DRY if settings.actuator is ActuatorKind.SHADOW else LIVE
    pilots = [Pilot(plan, name) for plan in plans]
    token = settings.nats_token.get_secret_value() or None
    tls = settings.nats_tls()
    bus = await Bus.connect(settings.nats_url, name="autoscaler", token=token, tls=tls)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        credentials = [tls.credentials] if tls else []
        await stack.enter_async_context(expiry_watched("autoscaler", credentials, REGISTRY))
        stack.enter_context(tasks_counted("autoscaler", REGISTRY))
        actuator, leadership = make_actuator(settings, pilots, bus)
        journal = LogWriter(settings.decision_log, settings.log_bytes, settings.log_files)
        stack.callback(journal.close)
        pace = Pace(settings.interval_ms / 1000, settings.settle_ms / 1000)
        service = Service(pilots, bus, actuator, leadership, journal, metrics, Memory(settings.folder), pace=pace)
        await _serve_status(settings, service, stack)
        _log.info(
            "autoscaler_started",
            actuator=settings.actuator.value,
            models=[plan.model for plan in plans],
            decision_log=str(settings.decision_log),
        )
        await run_until_signal(service.run())
    _log.info("autoscaler_stopped")


async def _serve_status(settings: AutoscalerSettings, service: Service, stack: AsyncExitStack) -> None:
    if settings.metrics_port == 0:
        return
    server = StatusServer(settings.metrics_host, settings.metrics_port, status_paths(service, REGISTRY))
    await server.start()
    stack.push_async_callback(server.close)


def main(arguments: Sequence[str] = ()) -> int:
    """Start from the environment; return the exit code, 2 for settings with which nothing can begin."""
    purpose = "Decide how many pods each model needs, and have them started, until SIGTERM."
    take_no_arguments(AutoscalerSettings, arguments, program="python -m copydesk.autoscaler", purpose=purpose)
    settings = load_settings(AutoscalerSettings)
    configure_logging("autoscaler", level=settings.log_level)
    try:
        run(serve(settings, load_plans(settings)))
    except PlanError as error:
        return refuse_setting(AutoscalerSettings, error.key, error.problem)
    except BusUrlError as error:
        return refuse_setting(AutoscalerSettings, "NATS_URL", str(error))
    except TlsError as error:
        return refuse_file(error)
    except StatusPortError as error:
        return refuse_setting(AutoscalerSettings, "METRICS_PORT", str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
