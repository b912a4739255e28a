"""Who to say one is: docker's `config.json`, and the credential helpers that it names.

https://docs.docker.com/reference/cli/docker/login/#credential-stores describes both. A helper is a program
`docker-credential-NAME`, which reads the registry's address and prints JSON.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from copydesk.imagefetcher.registry.errors import CredentialsError

HELPER_SECONDS = 30.0
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_HOSTS = ("docker.io", "registry-1.docker.io", "index.docker.io")
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOKEN_USER = "<token>"  # noqa: S105 - what a helper says in place of a user's name
_MAX_CONFIG = 4 << 20


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and password, or a token: to exchange (`identity_token`), or to send (`registry_token`)."""

    username: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """The value of an Authorization header, empty without a name."""
        if not self.username:
            return ""
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


class _Entry(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""
    registrytoken: str = ""


class _Config(msgspec.Struct):
    auths: dict[str, _Entry] = msgspec.field(default_factory=dict)
    cred_helpers: dict[str, str] = msgspec.field(default_factory=dict, name="credHelpers")
    creds_store: str = msgspec.field(default="", name="credsStore")


class _Answer(msgspec.Struct):
    username: str = msgspec.field(default="", name="Username")
    secret: str = msgspec.field(default="", name="Secret")


class CredentialStore:
    """Docker's configuration in one folder. It is read again for each question: a log-in may come at any time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "config.json"

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> CredentialStore:
        """The folder that docker would use: DOCKER_CONFIG, else `.docker` in the home folder."""
        named = environment.get("DOCKER_CONFIG")
        return cls(Path(named) if named else Path(environment.get("HOME") or "/") / ".docker")

    async def lookup(self, host: str) -> Credentials | None:
        """Who to be at this registry, None for nobody in particular; raises CredentialsError."""
        config = self._read()
        keys = (_HUB_KEY, *_HUB_HOSTS) if host in _HUB_HOSTS else (host,)
        for key in keys:
            if helper := config.cred_helpers.get(key):
                return await _ask_helper(helper, key)
        if config.creds_store:
            found = await _ask_helper(config.creds_store, keys[0])
            if found is not None:
                return found
        for key, entry in config.auths.items():
            if key in keys or _host_of(key) in keys:
                return self._credentials(key, entry)
        return None

    def _read(self) -> _Config:
        try:
            raw = self._path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return _Config()
        except OSError as error:
            raise CredentialsError(str(self._path), error.strerror or str(error)) from error
        if len(raw) > _MAX_CONFIG:
            raise CredentialsError(str(self._path), f"has {len(raw)} bytes")
        try:
            return msgspec.json.decode(raw, type=_Config)
        except (msgspec.DecodeError, RecursionError) as error:
            raise CredentialsError(str(self._path), str(error)) from error

    def _credentials(self, key: str, entry: _Entry) -> Credentials | None:
        username, password = entry.username, entry.password
        if entry.auth:
            try:
                decoded = base64.b64decode(entry.auth, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise CredentialsError(str(self._path), f"the entry of {key} is no base64") from error
            username, _, password = decoded.rstrip("\0").partition(":")
        found = Credentials(username, password, entry.identitytoken, entry.registrytoken)
        return None if found == Credentials() else found


def _host_of(key: str) -> str:
    return key.partition("://")[2].partition("/")[0] if "://" in key else key.partition("/")[0]


async def _ask_helper(name: str, key: str) -> Credentials | None:
    program = f"docker-credential-{name}"
    if not _HELPER.fullmatch(name):
        raise CredentialsError(program[:80], "that cannot be a helper's name")
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "get",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        raise CredentialsError(program, error.strerror or str(error)) from error
    try:
        async with asyncio.timeout(HELPER_SECONDS):
            output, _ = await process.communicate(key.encode())
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise CredentialsError(program, f"did not answer within {HELPER_SECONDS:.0f} s") from error
    if process.returncode:
        if b"not found" in output.lower():
            return None
        raise CredentialsError(program, f"ended with {process.returncode}")
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        # What it printed may hold a secret, so it is not repeated here.
        raise CredentialsError(program, "its answer is not what a helper gives") from error
    if answer.username == _TOKEN_USER:
        return Credentials(identity_token=answer.secret)
    return Credentials(answer.username, answer.secret)
