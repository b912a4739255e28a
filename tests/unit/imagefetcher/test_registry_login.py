"""Saying who one is: challenges, docker's configuration, credential helpers, tokens and how long they are good."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from copydesk.imagefetcher.registry.challenge import Challenge, parse_challenges
from copydesk.imagefetcher.registry.credentials import Credentials, CredentialStore
from copydesk.imagefetcher.registry.errors import AuthenticationError, CredentialsError
from copydesk.imagefetcher.registry.tokens import Authorizer

BEARER = 'Bearer realm="https://auth.example/token",service="registry.example"'
SCOPE = "repository:app:pull"


def store(folder: Path, **config: Any) -> CredentialStore:
    (folder / "config.json").write_text(json.dumps(config))
    return CredentialStore(folder)


def basic(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("header", "challenges"),
    [
        (BEARER, [Challenge("bearer", {"realm": "https://auth.example/token", "service": "registry.example"})]),
        ('Basic realm="a, \\"b\\""', [Challenge("basic", {"realm": 'a, "b"'})]),
        ("Negotiate, Basic realm=x", [Challenge("negotiate"), Challenge("basic", {"realm": "x"})]),
        ('BEARER Realm = "r" , scope="a b"', [Challenge("bearer", {"realm": "r", "scope": "a b"})]),
        ("", []),
        ('="', []),
    ],
)
def test_a_challenge_is_read(header: str, challenges: list[Challenge]) -> None:
    assert parse_challenges(header) == challenges


@pytest.mark.parametrize(
    "key", ["r.example:5000", "https://r.example:5000", "https://r.example:5000/v1/", "http://r.example:5000/v2"]
)
async def test_an_entry_is_found_however_its_registry_is_written(tmp_path: Path, key: str) -> None:
    found = store(tmp_path, auths={key: {"auth": basic("ann", "a:b")}})
    assert await found.lookup("r.example:5000") == Credentials("ann", "a:b")
    assert await found.lookup("r.example") is None


async def test_docker_hub_is_known_by_its_old_name(tmp_path: Path) -> None:
    found = store(tmp_path, auths={"https://index.docker.io/v1/": {"auth": basic("ann", "pw")}})
    assert await found.lookup("docker.io") == Credentials("ann", "pw")


async def test_without_a_configuration_nobody_in_particular_asks(tmp_path: Path) -> None:
    assert await CredentialStore(tmp_path / "none").lookup("r.example") is None
    environment = {"HOME": str(tmp_path)}
    assert await CredentialStore.of_environment(environment).lookup("r.example") is None


async def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CredentialsError, match=r"config\.json"):
        await CredentialStore(tmp_path).lookup("r.example")
    with pytest.raises(CredentialsError, match="base64"):
        await store(tmp_path, auths={"r.example": {"auth": "%%%"}}).lookup("r.example")


def helper(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "docker-credential-test"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


async def test_a_helper_is_asked_for_its_registry_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = 'read host; printf \'{"ServerURL":"%s","Username":"%s","Secret":"s3cret"}\' "$host" "$host"'
    helper(tmp_path, monkeypatch, f'[ "$1" = get ] && {answer}')
    found = store(tmp_path, credHelpers={"r.example": "test"})
    assert await found.lookup("r.example") == Credentials("r.example", "s3cret")
    assert await found.lookup("other.example") is None


async def test_a_helper_may_give_a_token_to_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, monkeypatch, 'printf \'{"Username":"<token>","Secret":"t"}\'')
    assert await store(tmp_path, credsStore="test").lookup("r.example") == Credentials(identity_token="t")


async def test_a_store_that_knows_nothing_leaves_it_to_the_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper(tmp_path, monkeypatch, "echo 'credentials not found in native keychain'; exit 1")
    found = store(tmp_path, credsStore="test", auths={"r.example": {"auth": basic("ann", "pw")}})
    assert await found.lookup("r.example") == Credentials("ann", "pw")


@pytest.mark.parametrize("script", ["exit 3", "echo s3cret"])
async def test_a_helper_that_fails_is_named_and_its_output_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    helper(tmp_path, monkeypatch, script)
    with pytest.raises(CredentialsError, match="docker-credential-test") as caught:
        await store(tmp_path, credsStore="test").lookup("r.example")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["../../bin/sh", "a/b", "", " "])
async def test_a_helper_is_no_path(tmp_path: Path, name: str) -> None:
    found = store(tmp_path, credHelpers={"r.example": name}, auths={})
    if not name:
        assert await found.lookup("r.example") is None
        return
    with pytest.raises(CredentialsError):
        await found.lookup("r.example")


def test_secrets_are_not_shown() -> None:
    shown = repr(Credentials("ann", "s3cret", "s3cret", "s3cret"))
    assert "ann" in shown
    assert "s3cret" not in shown


class TokenService:
    """Gives tokens numbered as they are asked for, good for `seconds`."""

    def __init__(self, seconds: float = 100.0) -> None:
        self.asked: list[tuple[str, list[tuple[str, str]], Mapping[str, str] | None, str]] = []
        self.now = 0.0
        self._seconds = seconds

    async def __call__(
        self, realm: str, query: Sequence[tuple[str, str]], form: Mapping[str, str] | None, authorization: str
    ) -> bytes:
        self.asked.append((realm, list(query), form, authorization))
        return json.dumps({"token": f"t{len(self.asked)}", "expires_in": self._seconds}).encode()

    def authorizer(self, credentials: Credentials | None = None) -> Authorizer:
        async def lookup() -> Credentials | None:
            return credentials

        return Authorizer("registry.example", lookup, self, clock=lambda: self.now)


async def test_a_token_is_kept_for_its_scope_and_fetched_again_before_it_ends() -> None:
    service = TokenService(seconds=100.0)
    authorizer = service.authorizer()
    assert await authorizer.header(SCOPE) == ""
    assert await authorizer.answer(BEARER, SCOPE) == "Bearer t1"
    service.now = 79.0
    assert await authorizer.header(SCOPE) == "Bearer t1"
    assert await authorizer.header("repository:other:pull") == "Bearer t2"
    service.now = 81.0
    assert await authorizer.header(SCOPE) == "Bearer t3"


async def test_a_token_is_asked_for_with_service_scopes_and_password() -> None:
    service = TokenService()
    await service.authorizer(Credentials("ann", "pw")).answer(BEARER, f"{SCOPE} repository:b:pull")
    realm, query, form, authorization = service.asked[0]
    assert realm == "https://auth.example/token"
    assert query == [("service", "registry.example"), ("scope", SCOPE), ("scope", "repository:b:pull")]
    assert form is None
    assert authorization == f"Basic {basic('ann', 'pw')}"


async def test_an_identity_token_is_exchanged() -> None:
    service = TokenService()
    await service.authorizer(Credentials(identity_token="long-lived")).answer(BEARER, SCOPE)
    form = service.asked[0][2]
    assert form is not None
    assert form["grant_type"] == "refresh_token"
    assert form["refresh_token"] == "long-lived"
    assert form["scope"] == SCOPE


async def test_a_password_is_wanted_and_none_is_known() -> None:
    with pytest.raises(AuthenticationError) as caught:
        await TokenService().authorizer().answer('Basic realm="x"', SCOPE)
    assert "docker login" in caught.value.hint


async def test_a_challenge_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(AuthenticationError):
        await TokenService().authorizer(Credentials("ann", "pw")).answer("Negotiate", SCOPE)
