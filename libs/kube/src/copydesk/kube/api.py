"""The API server over HTTP: pages of a list, the lines of a watch, one object read and written.

lightkube finds the configuration, and brings authentication (it reads a rotated token again) and TLS. The requests
are made here, since its own watch asks for no bookmarks, hides the headers of a refusal and never gives up on a
silent connection.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from copydesk.common.cut_off_handshakes import close_cut_off_handshake
from copydesk.kube.objects import Status
from copydesk.kube.trouble import (
    ExpiredError,
    KubernetesConfigError,
    NonsenseError,
    RefusedError,
    TooLargeError,
    UnreachableError,
)

ANSWER_SECONDS = 10.0
"""How long the server may take to begin an answer, and between the parts of one that is no watch."""

# An object is at most 1.5 MiB in etcd; a longer line is no event.
MAX_LINE = 8 * 1024 * 1024

# A page of 500 slices with 100 endpoints each takes 20 MiB.
MAX_ANSWER = 128 * 1024 * 1024

# What is read of the body of a refusal, for its message.
MAX_REFUSAL = 64 * 1024

GONE = 410

JSON = "application/json"
MERGE = "application/merge-patch+json"

# What a request may raise; credentials are made for each, by a file or a program that may fail.
TROUBLE = (httpx2.HTTPError, OSError, ConfigError)

T = TypeVar("T")


def find_config(path: Path | None) -> SingleConfig:
    """Return how to reach the API server: by the file `path`, or else as programs for Kubernetes find it.

    That is the service account of the pod, then `KUBECONFIG`, then `~/.kube/config`. Raises
    `KubernetesConfigError`.
    """
    try:
        config = KubeConfig.from_env() if path is None else KubeConfig.from_file(path)
        found = config.get()
    except KeyError as error:
        raise KubernetesConfigError(f"{error} is missing in {path or 'the configuration'}") from error
    except (AttributeError, TypeError) as error:
        raise KubernetesConfigError(f"{path or 'the configuration'} is no kubeconfig: {error}") from error
    except (ConfigError, ValueError, OSError, yaml.YAMLError) as error:
        raise KubernetesConfigError(_shown(error)) from error
    assert found is not None
    return found


class Api:
    """A client of one API server."""

    def __init__(self, config: SingleConfig) -> None:
        """Raises `KubernetesConfigError` if certificates or credentials cannot be read, or the address is none."""
        self.namespace = config.namespace
        # It writes a line for each request, and a lease alone makes one every second or two.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        try:
            if urlsplit(config.cluster.server).scheme not in ("http", "https"):
                raise KubernetesConfigError(f"server {config.cluster.server!r} begins with no https:// or http://")
            self._client: httpx2.AsyncClient = AsyncClient(
                config, ConnectionParams(timeout=httpx2.Timeout(ANSWER_SECONDS))
            )
        except (ConfigError, OSError, ValueError, AssertionError, httpx2.InvalidURL) as error:
            raise KubernetesConfigError(f"{_shown(error)}{_files(config)}") from error
        self._client.event_hooks = {"request": [close_cut_off_handshake]}

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def get(self, path: str, type_: type[T], params: Mapping[str, str] | None = None) -> T:
        """Read `path`; raise `UnreachableError`, `RefusedError`, `ExpiredError` or `NonsenseError`."""
        return await self._exchange("GET", path, type_, params=params)

    async def create(self, path: str, item: msgspec.Struct, type_: type[T]) -> T:
        """Create an object in the collection `path`; raises as `get` does."""
        return await self._exchange("POST", path, type_, body=item)

    async def replace(
        self, path: str, item: msgspec.Struct, type_: type[T], params: Mapping[str, str] | None = None
    ) -> T:
        """Replace the object at `path`, if it is still of the version that `item` has; raises as `get` does."""
        return await self._exchange("PUT", path, type_, params=params, body=item)

    async def patch(
        self, path: str, change: msgspec.Struct, type_: type[T], params: Mapping[str, str] | None = None
    ) -> T:
        """Merge `change` (RFC 7386: null removes) into the object at `path`; raises as `get` does.

        With a version in `change`, only if the object is still of it.
        """
        return await self._exchange("PATCH", path, type_, params=params, body=change)

    @asynccontextmanager
    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        """Open a watch: its lines, in the batches in which they come; raise as `get` does.

        How long to listen is up to the caller: a watch that says nothing has no end of its own. A last line that
        was cut off is dropped.
        """
        timeout = httpx2.Timeout(ANSWER_SECONDS, read=None)
        request = self._client.build_request("GET", path, params={**params, "watch": "true"}, timeout=timeout)
        try:
            response = await self._client.send(request, stream=True)
        except TROUBLE as error:
            raise UnreachableError(_shown(error)) from error
        try:
            await _check(response)
            yield _lines(response)
        finally:
            await response.aclose()

    async def _exchange(
        self,
        method: str,
        path: str,
        type_: type[T],
        *,
        params: Mapping[str, str] | None = None,
        body: msgspec.Struct | None = None,
    ) -> T:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"Content-Type": MERGE if method == "PATCH" else JSON}
        request = self._client.build_request(method, path, params=params, content=content, headers=headers)
        try:
            response = await self._client.send(request, stream=True)
            try:
                await _check(response)
                data = await _body(response, MAX_ANSWER)
            finally:
                await response.aclose()
        except TROUBLE as error:
            raise UnreachableError(_shown(error)) from error
        return decode(data, type_)


def decode(data: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Decode JSON; raise `NonsenseError` if it is none, or not of this type."""
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise NonsenseError(f"{type_.__name__}: {error}") from error


def refusal(status: Status) -> RefusedError | ExpiredError:
    """Make the error that `status` tells of."""
    message = status.message or status.reason or "no reason given"
    if status.code == GONE:
        return ExpiredError(message)
    wait = status.details.retry_after_seconds if status.details is not None else None
    return RefusedError(status.code or 0, message, float(wait or 0))


async def _check(response: httpx2.Response) -> None:
    if response.status_code == httpx2.codes.OK or response.status_code == httpx2.codes.CREATED:
        kind = response.headers.get("Content-Type", "")
        if kind.partition(";")[0].strip().lower() != JSON:
            raise NonsenseError(f"content type {kind!r}")
        return
    error = refusal(_status(response.status_code, await _body(response, MAX_REFUSAL)))
    if isinstance(error, RefusedError):
        error.retry_after = max(error.retry_after, _seconds(response.headers.get("Retry-After", "")))
    raise error


def _status(code: int, data: bytes) -> Status:
    try:
        status = msgspec.json.decode(data, type=Status)
    except (msgspec.DecodeError, ValueError, RecursionError):
        status = Status(message=data[:200].decode(errors="replace"))
    return Status(code, status.reason, status.message, status.details)


async def _body(response: httpx2.Response, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > limit:
            raise TooLargeError(limit)
        parts.append(part)
    return b"".join(parts)


async def _lines(response: httpx2.Response) -> AsyncIterator[list[bytes]]:
    # Not by the response's own lines: those end at characters that JSON's strings may contain, such as U+0085.
    rest = b""
    try:
        async for part in response.aiter_bytes():
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > MAX_LINE:
                raise NonsenseError(f"a line of more than {MAX_LINE} bytes")
            if whole := [line for line in lines if line]:
                yield whole
    except TROUBLE as error:
        raise UnreachableError(_shown(error)) from error


def _seconds(text: str) -> float:
    # Retry-After may also be a date, which API servers do not send.
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _files(config: SingleConfig) -> str:
    # An error of OpenSSL does not say of which file.
    user = config.user
    named = (config.cluster.certificate_auth, *((user.client_cert, user.client_key) if user is not None else ()))
    files = ", ".join(str(file) for file in named if file)
    return f" (it names {files})" if files else ""


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
