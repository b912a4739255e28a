"""Requests to one registry: authorised, retried, redirected with care.

A request is sent again when nothing was lost by it: the connection failed, the registry was busy (429) or at fault
(5xx), or it wanted a fresh token (401, once). A redirect to another origin gets no Authorization header, since
storage services behind registries are not the registry, and none leads from TLS to plain HTTP.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self

import httpx2
import msgspec

from copydesk.common.backoff import backoff_seconds
from copydesk.common.cut_off_handshakes import close_cut_off_handshake
from copydesk.imagefetcher.registry.errors import (
    AnswerError,
    AuthenticationError,
    CertificateRefusedError,
    NotFoundError,
    RefusedError,
    RegistryUnreachableError,
)
from copydesk.imagefetcher.registry.options import RegistryOptions
from copydesk.imagefetcher.registry.reference import is_loopback
from copydesk.imagefetcher.registry.tokens import Authorizer

MAX_REDIRECTS: Final = 5
MAX_ERROR_BYTES: Final = 64 << 10
MAX_TOKEN_BYTES: Final = 1 << 20
MAX_RETRY_AFTER: Final = 60.0
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_AGAIN: Final = (429, 500, 502, 503, 504)

Headers = Mapping[str, str]


class _Problem(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Problems(msgspec.Struct):
    errors: list[_Problem] = msgspec.field(default_factory=list)


class Transport:
    """The connections to the registry at `host`; use it as an async context manager.

    `sleep` waits between attempts, `chance` spreads the waits.
    """

    def __init__(
        self,
        host: str,
        options: RegistryOptions,
        *,
        login_host: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.host = host
        self.options = options
        self._base = httpx2.URL(options.base_url(host))
        self._sleep = sleep
        self._chance = chance
        self._authorizer = Authorizer(
            host, lambda: options.credentials.lookup(login_host or host), self._fetch_token
        )
        timeout = httpx2.Timeout(options.timeout, connect=options.connect_timeout)
        self._client = httpx2.AsyncClient(
            verify=options.tls(),
            timeout=timeout,
            headers=dict(options.headers),
            trust_env=not is_loopback(host),  # No proxy stands between this machine and itself.
            event_hooks={"request": [close_cut_off_handshake]},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection."""
        await self._client.aclose()

    def url(self, path: str) -> str:
        """The absolute address of a path, or of a Location that the registry gave."""
        return str(self._base.join(path))

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        headers: Headers | None = None,
        content: bytes = b"",
        allowed: tuple[int, ...] = (),
        attempts: int = 0,
    ) -> AsyncIterator[httpx2.Response]:
        """Sends a request; gives an answer of 2xx, or of a status in `allowed`, with its body unread.

        `attempts` limits how often it is sent (0: as the options say), for what must not be sent twice.

        Raises NotFoundError, AuthenticationError, RefusedError for others, RegistryUnreachableError without any.
        """
        response = await self._persist(
            method, path, scope, dict(headers or {}), content, allowed, attempts or self.options.attempts
        )
        try:
            yield response
        finally:
            await response.aclose()

    async def small(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        limit: int,
        headers: Headers | None = None,
        content: bytes = b"",
        allowed: tuple[int, ...] = (),
        attempts: int = 0,
    ) -> tuple[httpx2.Response, bytes]:
        """A request whose answer's body has at most `limit` bytes, with that body; retried if the body breaks off.

        Raises what `request` does, and AnswerError for a longer body.
        """
        most = attempts or self.options.attempts
        for attempt in range(most):
            try:
                async with self.request(
                    method, path, scope=scope, headers=headers, content=content, allowed=allowed, attempts=most
                ) as response:
                    return response, await self.body(response, limit)
            except httpx2.TransportError as error:
                if attempt + 1 == most:
                    raise self._unreachable(error) from error
                await self.pause(attempt)
        raise AssertionError("attempts is at least 1")

    async def body(self, response: httpx2.Response, limit: int) -> bytes:
        """The body of an answer, if it is no longer than `limit`; raises AnswerError, httpx2.TransportError."""
        body = bytearray()
        async for part in response.aiter_raw():
            body += part
            if len(body) > limit:
                raise AnswerError(self.host, f"answers with more than {limit} bytes")
        return bytes(body)

    async def pause(self, attempt: int, told: float = 0.0) -> None:
        """Waits before the next attempt, at least as long as the registry `told`."""
        wait = backoff_seconds(
            attempt, first=self.options.first_wait, cap=self.options.longest_wait, share=self._chance()
        )
        await self._sleep(max(wait, min(told, MAX_RETRY_AFTER)))

    def _unreachable(self, error: Exception) -> RegistryUnreachableError:
        problem = str(error)
        if "CERTIFICATE_VERIFY_FAILED" in problem:
            reason = problem.rpartition("verify failed: ")[2].partition(" (_ssl")[0]
            return CertificateRefusedError(self.host, f"its certificate is not to be trusted: {reason}")
        if "WRONG_VERSION_NUMBER" in problem:
            return RegistryUnreachableError(self.host, "does not speak TLS")
        return RegistryUnreachableError(self.host, f"{type(error).__name__}: {problem}".rstrip(": "))

    async def _persist(
        self,
        method: str,
        path: str,
        scope: str,
        headers: dict[str, str],
        content: bytes,
        allowed: tuple[int, ...],
        attempts: int,
    ) -> httpx2.Response:
        for attempt in range(attempts):
            last = attempt + 1 == attempts
            try:
                response = await self._authorised(method, path, scope, headers, content)
            except httpx2.TransportError as error:
                if last:
                    raise self._unreachable(error) from error
                await self.pause(attempt)
                continue
            if response.is_success or response.status_code in allowed:
                return response
            if response.status_code not in _AGAIN or last:
                await self._refuse(response, method, path)
            told = _retry_after(response)
            await response.aclose()
            await self.pause(attempt, told)
        raise AssertionError("attempts is at least 1")

    async def _authorised(
        self, method: str, path: str, scope: str, headers: dict[str, str], content: bytes
    ) -> httpx2.Response:
        authorization = await self._authorizer.header(scope)
        response = await self._redirected(method, path, headers, authorization, content)
        asked = response.headers.get("WWW-Authenticate")
        if response.status_code != 401 or not asked or not self._is_own(response.request.url):
            return response
        await response.aclose()
        authorization = await self._authorizer.answer(asked, scope)
        return await self._redirected(method, path, headers, authorization, content)

    async def _redirected(
        self, method: str, path: str, headers: dict[str, str], authorization: str, content: bytes
    ) -> httpx2.Response:
        url = self._joined(self._base, path)
        for _ in range(MAX_REDIRECTS):
            if url.scheme != "https" and not self._is_plain_allowed(url):
                raise AnswerError(self.host, f"leads to {url.scheme}://{url.host}, away from TLS")
            own = {"Authorization": authorization} if authorization and self._is_own(url) else {}
            response = await self._send(method, url, headers | own, content)
            location = response.headers.get("Location")
            if response.status_code not in _REDIRECTS or not location:
                return response
            await response.aclose()
            url = self._joined(url, location)
            if response.status_code == 303:
                method, content = "GET", b""
        raise AnswerError(self.host, f"leads on more than {MAX_REDIRECTS} times")

    async def _send(
        self, method: str, url: httpx2.URL, headers: dict[str, str], content: bytes
    ) -> httpx2.Response:
        # Asked for as it is: a proxy that compressed a blob would change its length and ranges.
        sent = {"Accept-Encoding": "identity"} | headers
        request = self._client.build_request(method, url, headers=sent, content=content or None)
        if method in ("POST", "PUT", "PATCH"):
            request.headers["Content-Length"] = str(len(content))
        return await self._client.send(request, stream=True)

    def _joined(self, base: httpx2.URL, location: str) -> httpx2.URL:
        try:
            return base.join(location)
        except (httpx2.InvalidURL, ValueError) as error:
            raise AnswerError(self.host, f"leads to {location[:200]!r}, which is no address") from error

    def _is_own(self, url: httpx2.URL) -> bool:
        return (url.scheme, url.host, url.port) == (self._base.scheme, self._base.host, self._base.port)

    def _is_plain_allowed(self, url: httpx2.URL) -> bool:
        return self._base.scheme == "http" and (self._is_own(url) or is_loopback(url.host))

    async def _refuse(self, response: httpx2.Response, method: str, path: str) -> None:
        try:
            body = await self.body(response, MAX_ERROR_BYTES)
            message = _message(body)
            if response.status_code == 400 and response.request.url.scheme == "http" and b"HTTPS" in body:
                message = "it speaks TLS; leave --plain-http away"
        except (httpx2.TransportError, AnswerError):
            message = ""
        finally:
            await response.aclose()
        what = path.partition("?")[0].removeprefix("/v2/")
        if response.status_code == 404:
            raise NotFoundError(self.host, what)
        if response.status_code in (401, 403):
            told = f": {message}" if message else ""
            named = response.request.headers.get("Authorization", "").startswith("Basic ")
            reason = "refuses the user's name or password" if named and response.status_code == 401 else ""
            reason = reason or f"does not let this user {method} {what}"
            raise AuthenticationError(self.host, f"{reason}{told}")
        raise RefusedError(self.host, f"{method} {what}", response.status_code, message)

    async def _fetch_token(
        self, realm: str, query: Sequence[tuple[str, str]], form: Mapping[str, str] | None, authorization: str
    ) -> bytes:
        """Asks the authorisation service that the registry named: another host maybe, but not a plainer one."""
        url = self._joined(httpx2.URL(""), realm)
        if url.scheme != "https" and not self._is_plain_allowed(url):
            raise AuthenticationError(self.host, f"names {realm[:200]!r} for tokens, which is not by TLS")
        for attempt in range(self.options.attempts):
            last = attempt + 1 == self.options.attempts
            try:
                response = await self._ask_for_token(url, query, form, authorization)
                if response.status_code not in _AGAIN or last:
                    return await self._token_body(response)
                await response.aclose()
            except httpx2.TransportError as error:
                if last:
                    raise self._unreachable(error) from error
            await self.pause(attempt)
        raise AssertionError("attempts is at least 1")

    async def _ask_for_token(
        self, url: httpx2.URL, query: Sequence[tuple[str, str]], form: Mapping[str, str] | None, authorization: str
    ) -> httpx2.Response:
        if form is not None:
            return await self._client.send(self._client.build_request("POST", url, data=dict(form)), stream=True)
        headers = {"Authorization": authorization} if authorization else {}
        address = url.copy_merge_params(httpx2.QueryParams(list(query)))
        return await self._client.send(self._client.build_request("GET", address, headers=headers), stream=True)

    async def _token_body(self, response: httpx2.Response) -> bytes:
        try:
            if not response.is_success:
                reason = f"its authorisation service answered {response.status_code}"
                raise AuthenticationError(self.host, reason)
            return await self.body(response, MAX_TOKEN_BYTES)
        finally:
            await response.aclose()


def _retry_after(response: httpx2.Response) -> float:
    told = response.headers.get("Retry-After", "")
    return float(told) if told.isascii() and told.isdigit() else 0.0


def _message(body: bytes) -> str:
    """What a registry says is wrong, on one line that a terminal can show."""
    try:
        problems = msgspec.json.decode(body, type=_Problems).errors
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return ""
    text = "; ".join(problem.message or problem.code for problem in problems)
    return "".join(character for character in text if character.isprintable())[:300]
