"""A sender for `POST /v1/correct`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import msgspec

from copydesk.loadtest.sample import RequestFailedError

_PATH = "/v1/correct"
_decode = msgspec.json.Decoder(dict[str, Any]).decode

OnAnswer = Callable[[int, dict[str, Any]], None]
"""Gets the index of a request and the decoded body of its good answer."""


def open_client(base_url: str, *, timeout: float = 60.0) -> httpx.AsyncClient:
    """Return a client for `base_url` without a limit on connections, to be closed by the caller.

    A limited pool would hold requests back that are due, which is just what an open loop must not do. Proxies
    of the environment are ignored. `timeout` is in seconds, for each step of a request.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=base_url, timeout=timeout, limits=limits, trust_env=False)


class CorrectSender:
    """Asks for the correction of `texts`, in turn and from the start again; `on_answer` sees every good answer.

    A failure's kind is `http_<status>`, `not_json`, or what httpx calls the trouble with the connection
    (`ConnectError`, `ReadTimeout`, ...).
    """

    def __init__(
        self, client: httpx.AsyncClient, texts: Sequence[str], *, on_answer: OnAnswer | None = None
    ) -> None:
        if not texts:
            raise ValueError("texts is empty, expected at least one")
        self._client = client
        self._bodies = [msgspec.json.encode({"text": text}) for text in texts]
        self._on_answer = on_answer

    async def __call__(self, index: int) -> None:
        """Send request `index`; raise `RequestFailedError` unless it is answered with 200 and a JSON object."""
        body = self._bodies[index % len(self._bodies)]
        try:
            answer = await self._client.post(_PATH, content=body, headers={"content-type": "application/json"})
        except httpx.HTTPError as error:
            raise RequestFailedError(type(error).__name__, str(error)) from error
        if answer.status_code != httpx.codes.OK:
            raise RequestFailedError(f"http_{answer.status_code}", answer.text)
        try:
            decoded = _decode(answer.content)
        except msgspec.DecodeError as error:
            raise RequestFailedError("not_json", str(error)) from error
        if self._on_answer is not None:
            self._on_answer(index, decoded)
