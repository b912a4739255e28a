"""Saying who one is: HTTP Basic, or bearer tokens, fetched, kept for each scope, and fetched again when they end.

https://distribution.github.io/distribution/spec/auth/token/ and .../auth/oauth/ describe the tokens.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from copydesk.imagefetcher.registry.challenge import Challenge, parse_challenges
from copydesk.imagefetcher.registry.credentials import Credentials
from copydesk.imagefetcher.registry.errors import AuthenticationError

CLIENT_ID: Final = "copydesk"
DEFAULT_SECONDS: Final = 60.0
"""How long a token is good that does not say so, by the specification."""
SAFETY_SHARE: Final = 0.8
"""A token is not used in the last fifth of its life, as it must still be good when the registry looks at it."""


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""
    expires_in: float = 0.0


@dataclass(frozen=True, slots=True)
class _Kept:
    header: str
    until: float


class TokenFetcher(Protocol):
    """Asks an authorisation service; returns the body of its answer."""

    async def __call__(
        self, realm: str, query: Sequence[tuple[str, str]], form: Mapping[str, str] | None, authorization: str
    ) -> bytes:
        """POSTs `form` if there is one, else GETs with `query`."""


class Authorizer:
    """What to put into the Authorization header for one registry."""

    def __init__(
        self,
        host: str,
        lookup: Callable[[], Awaitable[Credentials | None]],
        fetch: TokenFetcher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._lookup = lookup
        self._fetch = fetch
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._challenge: Challenge | None = None

    async def header(self, scope: str) -> str:
        """What to send with a request of this scope (several: spaces between); empty until the registry asked."""
        kept = self._kept.get(scope)
        if kept is not None and self._clock() < kept.until:
            return kept.header
        if self._challenge is None:
            return ""
        return await self._renew(self._challenge, scope)

    async def answer(self, www_authenticate: str, scope: str) -> str:
        """What to send after a 401 with this header; raises AuthenticationError if there is nothing new to say."""
        challenges = {challenge.scheme: challenge for challenge in reversed(parse_challenges(www_authenticate))}
        challenge = challenges.get("bearer") or challenges.get("basic")
        if challenge is None:
            raise AuthenticationError(
                self._host, f"asks for a log-in of a kind unknown here: {www_authenticate[:80]!r}"
            )
        self._challenge = challenge
        return await self._renew(challenge, scope)

    async def _renew(self, challenge: Challenge, scope: str) -> str:
        credentials = await self._lookup() or Credentials()
        kept = await self._basic(credentials) if challenge.scheme == "basic" else None
        kept = kept or await self._bearer(challenge, credentials, scope)
        self._kept[scope] = kept
        return kept.header

    async def _basic(self, credentials: Credentials) -> _Kept:
        if not credentials.basic:
            raise AuthenticationError(self._host, "wants a user's name and password, and none are known")
        return _Kept(credentials.basic, self._clock() + DEFAULT_SECONDS)

    async def _bearer(self, challenge: Challenge, credentials: Credentials, scope: str) -> _Kept:
        if credentials.registry_token:
            return _Kept(f"Bearer {credentials.registry_token}", self._clock() + DEFAULT_SECONDS)
        realm = challenge.parameters.get("realm", "")
        service = challenge.parameters.get("service", "")
        query = [("service", service)] + [("scope", part) for part in scope.split()]
        form = None
        if credentials.identity_token:
            exchange = {"grant_type": "refresh_token", "refresh_token": credentials.identity_token}
            form = {"service": service, "scope": scope, "client_id": CLIENT_ID} | exchange
        asked = self._clock()
        raw = await self._fetch(realm, query, form, credentials.basic)
        try:
            answer = msgspec.json.decode(raw, type=_Token)
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
            raise AuthenticationError(self._host, "its authorisation service gave no token") from error
        token = answer.token or answer.access_token
        if not token or not token.isascii() or any(character.isspace() for character in token):
            raise AuthenticationError(self._host, "its authorisation service gave no token")
        return _Kept(f"Bearer {token}", asked + SAFETY_SHARE * (answer.expires_in or DEFAULT_SECONDS))
