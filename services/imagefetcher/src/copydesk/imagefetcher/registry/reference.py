"""Names of images: `registry.example:5000/team/app:v1`, `app@sha256:...`, and what docker.io leaves out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from copydesk.common import hosts
from copydesk.imagefetcher.registry.errors import BadReferenceError

DOCKER_HUB = "docker.io"
_DOCKER_HUB_API = "registry-1.docker.io"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_NAME = 255


@dataclass(frozen=True, slots=True)
class Reference:
    """An image in a registry. `digest`, where given, decides; without both, `tag` is `latest`."""

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The reference that `text` names, by docker's rules; raises BadReferenceError."""
        name, at, digest = text.partition("@")
        if at and not _DIGEST.fullmatch(digest):
            raise BadReferenceError(text, "a digest is sha256: and 64 hexadecimal digits")
        name, tag = _split_tag(name)
        if tag is not None and not _TAG.fullmatch(tag):
            raise BadReferenceError(text, f"{tag!r} cannot be a tag")
        host, repository = _split_host(name)
        if not _HOST.fullmatch(host) or _port_of(host) > 65535:
            raise BadReferenceError(text, f"{host!r} cannot be a registry")
        if not _REPOSITORY.fullmatch(repository) or len(name) > _MAX_NAME:
            reason = "must be in lower case" if repository != repository.lower() else "cannot be a repository"
            raise BadReferenceError(text, f"{repository!r} {reason}")
        return cls(host, repository, tag or ("" if digest else "latest"), digest)

    @property
    def api_host(self) -> str:
        """Where the registry answers: Docker Hub's name is not its address."""
        return _DOCKER_HUB_API if self.host == DOCKER_HUB else self.host

    @property
    def name(self) -> str:
        """Registry and repository, without tag and digest."""
        return f"{self.host}/{self.repository}"

    @property
    def object(self) -> str:
        """What to ask the registry for: the digest if there is one, else the tag."""
        return self.digest or self.tag

    def with_object(self, tag: str = "", digest: str = "") -> Reference:
        """Another image of the same repository."""
        return Reference(self.host, self.repository, tag, digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}{'@' + self.digest if self.digest else ''}"


def is_loopback(host: str) -> bool:
    """Whether a registry's host (with or without a port) is this machine by any network's rules."""
    name = host if host.count(":") > 1 and not host.startswith("[") else host.rpartition(":")[0] or host
    return hosts.is_loopback(name.strip("[]"))


def _split_tag(name: str) -> tuple[str, str | None]:
    head, colon, tag = name.rpartition(":")
    # A colon before the last slash belongs to a port.
    return (head, tag) if colon and "/" not in tag else (name, None)


def _split_host(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and (any(mark in first for mark in ".:[") or first == "localhost" or first != first.lower()):
        return (DOCKER_HUB if first == "index.docker.io" else first), rest
    return DOCKER_HUB, name if slash else f"library/{name}"


def _port_of(host: str) -> int:
    port = host.rpartition(":")[2]
    return int(port) if port.isdigit() and ":" in host else 0
