"""Snapshots as gateways hear them: from NATS; and why there may be none."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import psutil
from pydantic import ValidationError

from copydesk.cli.discovery.origin import OnSnapshot, OriginError
from copydesk.cli.fleet.plan import NATS_VARIABLE, Role
from copydesk.cli.fleet.state import FleetState, running_fleets
from copydesk.common.bus import Bus, BusUrlError
from copydesk.common.messages import EndpointsSnapshot, endpoints_subject
from copydesk.common.tls import ClientTls, TlsError
from copydesk.common.tls.settings import NatsTlsSettings

DEFAULT_NATS = "nats://127.0.0.1:4222"
NATS_PORT = 4222
URL_VARIABLE = "COPYDESK_EDS_NATS_URL"
TOKEN_VARIABLE = "COPYDESK_EDS_NATS_TOKEN"  # noqa: S105 - the name of a variable
TLS_VARIABLES = "COPYDESK_NATS_TLS_CERT_FILE, _KEY_FILE and _CA_FILE"
FIRST_TRY_S = 0.5
CONNECT_S = 2.0
GREETING_S = 1.0


def find_nats(url: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    """Choose a NATS server and its token: the one named, the environment's, the local fleet's, or the usual port.

    A fleet that runs here keeps its token in the environment of its processes, which none but their user can read.
    """
    token = environ.get(TOKEN_VARIABLE) or environ.get(NATS_VARIABLE, "")
    named = url or environ.get(URL_VARIABLE)
    for fleet in running_fleets():
        if named in (None, fleet.nats_url):
            return fleet.nats_url, token or _token_of(fleet)
    return named or DEFAULT_NATS, token


def _token_of(fleet: FleetState) -> str:
    for process in fleet.processes:
        if process.role == Role.EDS.value and process.pid is not None:
            with suppress(psutil.Error):
                return psutil.Process(process.pid).environ().get(TOKEN_VARIABLE, "")
    return ""


class NatsOrigin:
    """Snapshots as they are published; `models` are subscribed to, or all if none is named."""

    def __init__(self, url: str, token: str, models: tuple[str, ...]) -> None:
        self._url = url
        self._token = token
        self._models = models
        self._bus: Bus | None = None

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._bus is not None and self._bus.connected

    @property
    def trouble(self) -> str:
        """Nothing, once connected: who is silent then is discovery."""
        return ""

    async def start(self, on_snapshot: OnSnapshot) -> None:
        """Subscribe; raise `OriginError` if the server does not let us in."""
        self._bus = await begin(self._url, self._token, "inspect")
        for model in self._models or ("*",):
            await self._bus.subscribe(endpoints_subject(model), EndpointsSnapshot, on_snapshot)
        await let_in(self._bus, self._url, self._token)

    async def close(self) -> None:
        """End the connection."""
        if self._bus is not None:
            await self._bus.close()


async def begin(url: str, token: str, name: str) -> Bus:
    """Begin to connect as `name`; raise `OriginError` if `url` is none, or files for TLS cannot be used."""
    try:
        return await Bus.connect(url, name=name, token=token or None, tls=_tls())
    except BusUrlError as error:
        raise OriginError(str(error), "give one by --nats-url") from error


class _EdsVariables(NatsTlsSettings, env_prefix="COPYDESK_EDS_"):
    """As discovery has them, for who asks from where it runs."""


class _Variables(NatsTlsSettings, env_prefix="COPYDESK_"):
    """For who asks from elsewhere."""


def _tls() -> ClientTls | None:
    try:
        return _EdsVariables().nats_tls() or _Variables().nats_tls()
    except TlsError as error:
        raise OriginError(str(error), f"{TLS_VARIABLES} name the files") from error
    except ValidationError as error:  # some of the files are named, and not all
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise OriginError(reason, f"{TLS_VARIABLES} name the files") from error


async def let_in(bus: Bus, url: str, token: str, start: str = "copydesk up") -> None:
    """Wait for the connection; raise `OriginError` if the server does not let us in, with the reason.

    `start` is the command for a fleet that says what is listened for.
    """
    if await bus.wait_connected(FIRST_TRY_S):
        return
    shown, greeting = await _greeted(url, start)
    if not await bus.wait_connected(CONNECT_S):
        raise _refused(shown, greeting, token)


async def _greeted(url: str, start: str) -> tuple[str, dict[str, object]]:
    """Return the first server of `url`, without a password, and its greeting; raise `OriginError` without one."""
    parts = urlsplit(url.split(",")[0].strip())
    host, port = parts.hostname or "", parts.port or NATS_PORT
    shown = f"{parts.scheme}://{host}:{port}"
    elsewhere = f"say where NATS is by --nats-url or {URL_VARIABLE}, or start a fleet with: {start}"
    try:
        async with asyncio.timeout(GREETING_S):
            greeting = await _greeting(host, port)
    except TimeoutError:
        raise OriginError(f"NATS at {shown} does not answer within {GREETING_S:g} s", elsewhere) from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OriginError(f"NATS at {shown} is not reachable ({reason})", elsewhere) from error
    if not greeting:
        raise OriginError(f"what listens at {shown} is no NATS server", elsewhere)
    return shown, greeting


def _refused(shown: str, greeting: dict[str, object], token: str) -> OriginError:
    if greeting.get("tls_required") and _tls() is None:
        return OriginError(f"NATS at {shown} asks for TLS", f"name the files of a certificate by {TLS_VARIABLES}")
    if greeting.get("auth_required"):
        what = "does not accept this token" if token else "asks for a token"
        return OriginError(f"NATS at {shown} {what}", f"set {TOKEN_VARIABLE} to the one it was started with")
    return OriginError(f"NATS at {shown} greets and then refuses the connection", "its own log says why")


async def _greeting(host: str, port: int) -> dict[str, object]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        line = await reader.readline()
    except ValueError:
        return {}
    finally:
        writer.close()
    kind, _, rest = line.partition(b" ")
    try:
        found = json.loads(rest) if kind == b"INFO" else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
