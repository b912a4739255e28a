"""Copydesk's REST API from the client's side, with errors that say what to do."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import msgspec

from copydesk.common.errors import CopydeskError
from copydesk.common.hosts import is_loopback

TIMEOUT_S = 90.0
"""More than a request's deadline in the gateway, whose answer says more than a timeout here would."""
_T = TypeVar("_T")
KEY_VARIABLE = "COPYDESK_API_KEY"
BUSY = frozenset({429, 503})
FOREIGN = "no_copydesk_answer"
"""Our own code for an error that was not written by a gateway."""


class Edit(msgspec.Struct, frozen=True):
    """Replace [`start`, `end`) of the text that was sent, in code points, by `replacement`."""

    start: int
    end: int
    replacement: str


class Skipped(msgspec.Struct, frozen=True):
    """A sentence that came back as it was, and why."""

    start: int = 0
    end: int = 0
    reason: str = ""


class Correction(msgspec.Struct, frozen=True):
    """The answer to one text."""

    corrected: str
    edits: tuple[Edit, ...]
    model: str = ""
    skipped: tuple[Skipped, ...] = ()


class PodView(msgspec.Struct, frozen=True):
    """One pod, as the gateway sees it; `running` and `queued` are null until the pod has told."""

    id: str
    state: str
    connected: bool
    address: str = ""
    eligible: bool = False
    in_flight: int = 0
    running: int | None = None
    queued: int | None = None
    capacity: int = 0
    ewma_ms: float | None = None
    requests: int = 0
    errors: int = 0


class FleetView(msgspec.Struct, frozen=True):
    """The fleet, as the gateway sees it."""

    pods: tuple[PodView, ...]
    model: str = ""
    model_digest: str = ""
    discovery_connected: bool = True


class ApiError(CopydeskError):
    """The fleet answered with an error; `retry_after` is in seconds."""

    def __init__(self, status: int, code: str, message: str, retry_after: float = 0.0) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.retry_after = retry_after
        super().__init__(f"{message} ({code})")

    @property
    def exit_code(self) -> int:
        """2 when the request is at fault, 1 when the fleet is."""
        if self.code == FOREIGN:
            return 1
        return 2 if 400 <= self.status < 500 and self.status != 429 else 1


class FleetUnreachableError(CopydeskError):
    """Nothing answers at `url`."""

    exit_code = 1

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"no fleet answers at {url} ({reason})")


def advice(error: ApiError | FleetUnreachableError) -> str:
    """Say in a few words what a person can do about an error."""
    if isinstance(error, FleetUnreachableError):
        return "start one with `copydesk up`, or name another with --url"
    if error.code == FOREIGN:
        return "what answers there is no Copydesk gateway, or a proxy before one that does not reach it"
    if error.status == 401:
        return f"set {KEY_VARIABLE} to a key of this fleet"
    if error.status == 404:
        return "give the fleet's address alone, such as http://127.0.0.1:8080"
    if error.status == 429:
        return "the fleet is busy: try again in a moment, or start more pods (`copydesk up --pods N`)"
    if error.status == 503:
        return "no pod can take it now: see `copydesk status`"
    if error.status == 504:
        return "it took too long: send less at once, or start more pods (`copydesk up --pods N`)"
    if error.status >= 500:
        return "see the gateway's log; `copydesk status` shows where it is"
    return "change the input"


@dataclass(frozen=True, slots=True)
class Timed:
    """A correction and how long it took from here, in milliseconds."""

    correction: Correction
    latency_ms: float


class Api:
    """A connection to a fleet. Methods raise `ApiError` and `FleetUnreachableError`."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._client = httpx.Client(
            base_url=self.url, timeout=TIMEOUT_S, headers=_headers(), trust_env=not _is_loopback(self.url)
        )

    def correct(self, text: str) -> Timed:
        """Correct one text."""
        with _reaching(self.url):
            began = time.perf_counter()
            response = self._client.post("/v1/correct", json={"text": text})
            return Timed(_decode(response, Correction), _since(began))

    def fleet(self) -> FleetView:
        """Ask the gateway for its view of the fleet."""
        with _reaching(self.url):
            return _decode(self._client.get("/v1/fleet", timeout=5.0), FleetView)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def open_async(url: str, timeout: float = TIMEOUT_S) -> httpx.AsyncClient:
    """Open a client for a fleet on this machine, to be used with `correct_async`; no proxy stands between."""
    return httpx.AsyncClient(base_url=url, timeout=timeout, headers=_headers(), trust_env=False)


async def correct_async(client: httpx.AsyncClient, text: str) -> Timed:
    """Correct one text without holding up the event loop; raises as `Api` does."""
    with _reaching(str(client.base_url)):
        began = time.perf_counter()
        response = await client.post("/v1/correct", json={"text": text})
        return Timed(_decode(response, Correction), _since(began))


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.ConnectError as error:
        raise FleetUnreachableError(
            url, "connection refused" if "refused" in str(error) else str(error)
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise FleetUnreachableError(url, str(error) or type(error).__name__) from error


def _headers() -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE, "")
    return {"Authorization": f"Bearer {key}"} if key else {}


def _is_loopback(url: str) -> bool:
    return is_loopback(httpx.URL(url).host)


def _since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 1)


def _decode(response: httpx.Response, type_: type[_T]) -> _T:
    if not response.is_success:
        raise _error(response)
    try:
        return msgspec.json.decode(response.content, type=type_)
    except msgspec.DecodeError as error:
        raise FleetUnreachableError(str(response.url), f"what answers is no Copydesk gateway: {error}") from error


def _error(response: httpx.Response) -> ApiError:
    code, message = FOREIGN, f"{response.url.path} gave status {response.status_code} {response.reason_phrase}"
    try:
        fault = msgspec.json.decode(response.content, type=dict[str, Any]).get("error", {})
        code, message = str(fault.get("code", code)), str(fault.get("message", message))
    except (msgspec.DecodeError, AttributeError):
        pass
    return ApiError(response.status_code, code, message, _retry_after(response))


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(0.0, float(response.headers.get("retry-after", "0")))
    except ValueError:
        return 0.0
