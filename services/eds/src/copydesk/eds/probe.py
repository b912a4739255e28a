"""Probes: is anybody at the address of an endpoint that nobody lists any more, or nobody as ready?

A pod of Copydesk's is asked for the hello of its RPC, one that speaks HTTP for its list of models.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import re
from collections.abc import Callable, Iterable

from copydesk.common.messages import Endpoint, EndpointProtocol, EndpointState
from copydesk.common.rpc import Channel, Hello, RpcConnectError, RpcError, TcpAddress
from copydesk.common.telemetry import get_logger
from copydesk.common.tls import ClientTls

RETRY_S = 1.0
CONCURRENCY = 64

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_log = get_logger(__name__)


class Sighting(enum.StrEnum):
    """What a probe found.

    Only `GONE` is proof that the endpoint may go: nobody listens, or somebody who serves another model, says
    goodbye, or says that he is not ready where the endpoint was. Silence proves nothing, as it may be this process
    that is cut off.
    """

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


async def probe(
    model: str, endpoint: Endpoint, *, token: str, timeout: float, tls: ClientTls | None = None
) -> Sighting:
    """Ask at `endpoint`, in what it speaks, who is there; `token` is the pods', `timeout` in seconds."""
    if endpoint.protocol is EndpointProtocol.OPENAI:
        return await _probe_http(endpoint, token, timeout, tls)
    address = TcpAddress(endpoint.host, endpoint.port)
    try:
        channel = await Channel.open(
            address,
            name="eds",
            token=token,
            timeout=timeout,
            tls=tls.context() if tls else None,
            tls_name=tls.name if tls else "",
        )
    except RpcConnectError as error:
        return Sighting.GONE if _is_refused(error.reason) else Sighting.UNKNOWN
    except RpcError:
        return Sighting.UNKNOWN
    await channel.close()
    return _judge(model, endpoint, channel.peer)


async def _probe_http(endpoint: Endpoint, token: str, timeout: float, tls: ClientTls | None) -> Sighting:
    try:
        async with asyncio.timeout(timeout):
            status = await _status_of_models(endpoint, token, tls)
    except (OSError, TimeoutError, EOFError) as error:
        return Sighting.GONE if _is_refused(str(error)) else Sighting.UNKNOWN
    except (ValueError, OverflowError):  # a host or port that can be none
        return Sighting.UNKNOWN
    if status in range(200, 300):
        return Sighting.ALIVE
    if status >= 500 and endpoint.state is EndpointState.READY:
        return Sighting.GONE
    return Sighting.UNKNOWN


async def _status_of_models(endpoint: Endpoint, token: str, tls: ClientTls | None) -> int:
    """Return the status of `GET /v1/models`, 0 for an answer that is no HTTP; raise what the connection raises."""
    reader, writer = await asyncio.open_connection(
        endpoint.host,
        endpoint.port,
        ssl=tls.context() if tls else None,
        server_hostname=(tls.name or None) if tls else None,
    )
    try:
        writer.write(_request(endpoint, token))
        found = _STATUS.match(await reader.readuntil(b"\n"))
        return int(found[1]) if found else 0
    except asyncio.LimitOverrunError:
        return 0
    finally:
        writer.close()


def _request(endpoint: Endpoint, token: str) -> bytes:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    lines = ["GET /v1/models HTTP/1.1", f"Host: {host}:{endpoint.port}", "Connection: close"]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode()


def _judge(model: str, endpoint: Endpoint, hello: Hello) -> Sighting:
    if hello.state is EndpointState.DRAINING or hello.model not in (model, ""):
        return Sighting.GONE
    if hello.state is EndpointState.WARMING and endpoint.state is EndpointState.READY:
        return Sighting.GONE
    return Sighting.ALIVE


def _is_refused(reason: str) -> bool:
    # A name with several addresses gives one error that quotes each; all must say that nobody listens.
    codes = _ERRNO.findall(reason)
    return bool(codes) and all(int(code) == errno.ECONNREFUSED for code in codes)


class Prober:
    """Probes suspects, each once a second at most, and calls `on_gone` for those that are gone.

    `on_sighting` is called with what each probe found.
    """

    def __init__(
        self,
        on_gone: Callable[[str, Endpoint], None],
        *,
        token: str,
        timeout: float,
        tls: ClientTls | None = None,
        on_sighting: Callable[[Sighting], None] | None = None,
    ) -> None:
        self._on_gone = on_gone
        self._on_sighting = on_sighting
        self._token = token
        self._timeout = timeout
        self._tls = tls
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._tasks: dict[tuple[str, Endpoint], asyncio.Task[None]] = {}

    def watch(self, suspects: Iterable[tuple[str, Endpoint]]) -> None:
        """Probe exactly these from now on, until the next call."""
        wanted = set(suspects)
        for suspect in self._tasks.keys() - wanted:
            self._tasks.pop(suspect).cancel()
        for suspect in wanted - self._tasks.keys():
            self._tasks[suspect] = asyncio.create_task(self._pursue(*suspect), name=f"probe-{suspect[1].id}")

    async def close(self) -> None:
        """Stop all probes."""
        tasks = tuple(self._tasks.values())
        self.watch(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pursue(self, model: str, endpoint: Endpoint) -> None:
        before: Sighting | None = None
        while True:
            async with self._slots:
                sighting = await probe(model, endpoint, token=self._token, timeout=self._timeout, tls=self._tls)
            if self._on_sighting is not None:
                self._on_sighting(sighting)
            if sighting is not before:
                _log.info("suspect_probed", model=model, endpoint=endpoint.id, found=sighting.value)
                before = sighting
            if sighting is Sighting.GONE:
                self._on_gone(model, endpoint)
            await asyncio.sleep(RETRY_S)
