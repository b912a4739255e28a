"""`python -m copydesk.eds`: run endpoint discovery until a signal ends it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from prometheus_client import REGISTRY

from copydesk.common.bus import Bus, BusUrlError
from copydesk.common.process import run, run_until_signal
from copydesk.common.settings import load_settings, refuse_setting, take_no_arguments
from copydesk.common.status_server import StatusPortError, StatusServer
from copydesk.common.task_gauge import tasks_counted
from copydesk.common.telemetry import configure_logging, get_logger
from copydesk.common.tls import TlsError, expiry_watched
from copydesk.common.tls.settings import refuse_file
from copydesk.eds.endpoint_file import EndpointFileError
from copydesk.eds.metrics import Metrics
from copydesk.eds.service import OnSnapshot, Service
from copydesk.eds.settings import EdsSettings
from copydesk.eds.sources import make_leadership, make_source
from copydesk.eds.status_paths import status_paths
from copydesk.eds.xds.terms import XdsSettingError, terms
from copydesk.kube.trouble import KubernetesConfigError

_log = get_logger("copydesk.eds")


async def serve(settings: EdsSettings) -> None:
    """Run until SIGTERM or SIGINT; raise the error of whatever cannot begin."""
    metrics = Metrics()
    rpc_tls, nats_tls = settings.rpc_tls(), settings.nats_tls()
    token = settings.nats_token.get_secret_value() or None
    bus = await Bus.connect(settings.nats_url, name="eds", token=token, tls=nats_tls)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        credentials = [each.credentials for each in (rpc_tls, nats_tls) if each]
        await stack.enter_async_context(expiry_watched("eds", credentials, REGISTRY))
        stack.enter_context(tasks_counted("eds", REGISTRY))
        leadership = make_leadership(settings)
        source = make_source(settings, bus, metrics)
        listeners = await _serve_xds(settings, stack)
        service = Service(settings, bus, source, metrics, leadership, listeners, rpc_tls)
        await _serve_status(settings, service, stack)
        _log.info("eds_started", source=settings.source.value, epoch=leadership.epoch)
        await run_until_signal(service.run())
    _log.info("eds_stopped")


async def _serve_xds(settings: EdsSettings, stack: AsyncExitStack) -> list[OnSnapshot]:
    if settings.xds_port == 0:
        return []
    # Imported here, since gRPC takes 20 MB that most replicas do without.
    from copydesk.eds.xds.metrics import XdsMetrics
    from copydesk.eds.xds.server import XdsServer

    server = XdsServer(settings.xds_host, settings.xds_port, terms(settings), XdsMetrics())
    stack.push_async_callback(server.close)
    await server.start()
    return [server.on_snapshot]


async def _serve_status(settings: EdsSettings, service: Service, stack: AsyncExitStack) -> None:
    if settings.metrics_port == 0:
        return
    server = StatusServer(settings.metrics_host, settings.metrics_port, status_paths(service, REGISTRY))
    await server.start()
    stack.push_async_callback(server.close)


def main(arguments: Sequence[str] = ()) -> int:
    """Start from the environment; return the exit code, 2 for settings with which nothing can begin."""
    purpose = "Tell gateways which pods there are, until SIGTERM."
    take_no_arguments(EdsSettings, arguments, program="python -m copydesk.eds", purpose=purpose)
    settings = load_settings(EdsSettings)
    configure_logging("eds", level=settings.log_level)
    try:
        run(serve(settings))
    except BusUrlError as error:
        return refuse_setting(EdsSettings, "NATS_URL", str(error))
    except TlsError as error:
        return refuse_file(error)
    except EndpointFileError as error:
        return refuse_setting(EdsSettings, "STATIC_FILE", str(error))
    except KubernetesConfigError as error:
        return refuse_setting(EdsSettings, "KUBE_CONFIG", str(error))
    except StatusPortError as error:
        return refuse_setting(EdsSettings, "METRICS_PORT", str(error))
    except XdsSettingError as error:
        return refuse_setting(EdsSettings, error.key, error.problem)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
