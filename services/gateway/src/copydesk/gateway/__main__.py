"""`python -m copydesk.gateway`: serve the REST API until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import Sequence
from types import ModuleType

from copydesk.common.bus import BusUrlError
from copydesk.common.compiled import CompiledLibraryError
from copydesk.common.process import run, run_until_signal, settle_memory
from copydesk.common.settings import EXIT_BAD_SETTINGS, load_settings, take_no_arguments, variable_name
from copydesk.common.telemetry import configure_logging, get_logger
from copydesk.common.tls import TlsError
from copydesk.common.tls.settings import refuse_file
from copydesk.common.tracing import tracing
from copydesk.gateway.app import build_app, build_hot_path
from copydesk.gateway.keys import KeyRing, KeysFileError
from copydesk.gateway.lane.native import open_native
from copydesk.gateway.server import ListenError, Server, listen
from copydesk.gateway.service import Gateway
from copydesk.gateway.settings import GatewaySettings

NEW_OBJECTS = 20_000
"""How many more objects than before there must be before Python looks for cycles among them. A request is a few
dozen for as long as it is underway, and leaves no cycle behind: by default, 700, the looking takes a tenth of all
time."""

_log = get_logger(__name__)


def main(arguments: Sequence[str] = ()) -> int:
    """Run the gateway; returns the exit status."""
    purpose = "Serve Copydesk's REST API until SIGTERM."
    take_no_arguments(GatewaySettings, arguments, program="python -m copydesk.gateway", purpose=purpose)
    settings = load_settings(GatewaySettings)
    configure_logging("gateway", level=settings.log_level)
    tracing.configure("gateway")
    try:
        keys = _keys(settings)
        native = open_native(settings.core)
        listener = listen(settings.host, settings.port)
        run(_serve(settings, keys, listener, native))
    except KeysFileError as error:
        return _refuse(f"{variable_name(GatewaySettings, 'api_keys_file')}: {error}")
    except ListenError as error:
        host, port = (variable_name(GatewaySettings, name) for name in ("host", "port"))
        return _refuse(f"{error}; {host} and {port} say where to listen")
    except BusUrlError as error:
        return _refuse(f"{variable_name(GatewaySettings, 'nats_url')}: {error}")
    except TlsError as error:
        return refuse_file(error)
    except (CompiledLibraryError, _OpenToAllError) as error:
        return _refuse(str(error))
    finally:
        tracing.close()
    return 0


def _refuse(problem: str) -> int:
    print(f"copydesk.gateway: {problem}", file=sys.stderr)
    return EXIT_BAD_SETTINGS


class _OpenToAllError(Exception):
    """An address that others can reach, without keys."""


def _keys(settings: GatewaySettings) -> KeyRing | None:
    if settings.api_keys_file is not None:
        return KeyRing.load(settings.api_keys_file)
    if not settings.loopback and not settings.api_keys_redis:
        file, redis = (variable_name(GatewaySettings, name) for name in ("api_keys_file", "api_keys_redis"))
        raise _OpenToAllError(
            f"{settings.host} can be reached from other machines, and anybody there could use the fleet: "
            f"set {file} to a file of API keys, or {redis}, or listen on 127.0.0.1"
        )
    return None


async def _serve(
    settings: GatewaySettings, keys: KeyRing | None, listener: socket.socket, native: ModuleType | None
) -> None:
    gateway = Gateway(settings, native)
    await gateway.start()
    server = Server(
        build_app(gateway, keys),
        build_hot_path(gateway, keys),
        grace=settings.drain_grace_ms / 1000,
        timeout=settings.shutdown_timeout_ms / 1000,
    )
    settle_memory()
    gc.set_threshold(NEW_OBJECTS, 10, 10)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopping = asyncio.create_task(run_until_signal())
    host, port = listener.getsockname()[:2]
    keyed = gateway.gatekeeper.ring is not None
    _log.info("gateway_listening", host=host, port=port, model=settings.model, keys=keyed)
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        server.stop()
        await serving
    finally:
        stopping.cancel()
        await gateway.close()
    _log.info("gateway_stopped")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
