"""What an image runs: its configuration and what was asked for, made into arguments, environment, user. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from copydesk.imagefetcher.registry.errors import AnswerError
from copydesk.imagefetcher.tracing.errors import CommandNotFoundError, UserNotFoundError
from copydesk.imagefetcher.tree import Node

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_LINKS = 40
"""The kernel follows no more symlinks than these in one path."""

ReadFile = Callable[[str], bytes]
"""The content of a file of the image, empty if it has none of this name."""


class RunConfig(msgspec.Struct, frozen=True, rename="pascal"):
    """How the image is run, as its configuration says (OCI image specification, "config")."""

    env: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    working_dir: str = ""
    user: str = ""


class _Configuration(msgspec.Struct):
    config: RunConfig | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """What is run: `arguments` begin with the command, `groups` are further ones than `gid`."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str = "/"
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()


def decode_run_config(host: str, raw: bytes) -> RunConfig:
    """How an image's configuration says it is run; raises AnswerError for what is none."""
    try:
        return msgspec.json.decode(raw, type=_Configuration).config or RunConfig()
    except (msgspec.DecodeError, RecursionError) as error:
        raise AnswerError(host, f"has a configuration that cannot be run: {error}") from error


def process_of(
    config: RunConfig,
    command: Sequence[str],
    environment: Mapping[str, str],
    root: Node,
    read_file: ReadFile,
) -> Process:
    """What to run: `command`, or without one the image's own; `environment` goes over the image's.

    Raises CommandNotFoundError, UserNotFoundError.
    """
    arguments = tuple(command) or (*(config.entrypoint or ()), *(config.cmd or ()))
    own = dict(entry.split("=", 1) for entry in config.env or () if "=" in entry)
    merged = {"PATH": DEFAULT_PATH, **own, **environment}
    directory = config.working_dir or "/"
    if not arguments:
        raise CommandNotFoundError("", "is needed: the image names none of its own")
    _check_command(arguments[0], merged["PATH"], directory, root)
    uid, gid, groups, home = _user(config.user, read_file)
    merged.setdefault("HOME", home)
    return Process(arguments, merged, directory, uid, gid, groups)


def follow(root: Node, path: str) -> Node | None:
    """The node that `path` names in the end, symlinks followed within the image; None if there is none."""
    pending = [part for part in reversed(path.encode().split(b"/")) if part not in (b"", b".")]
    trail = [root]
    links = 0
    while pending:
        part = pending.pop()
        if part == b"..":
            trail = trail[:-1] or [root]
            continue
        node = trail[-1].children.get(part)
        if node is None:
            return None
        if not node.is_symlink:
            trail.append(node)
            continue
        links += 1
        if links > MAX_LINKS:
            return None
        if node.target.startswith(b"/"):
            trail = [root]
        pending += [part for part in reversed(node.target.split(b"/")) if part not in (b"", b".")]
    return trail[-1]


def _check_command(command: str, search: str, directory: str, root: Node) -> None:
    if "/" in command:
        node = follow(root, command if command.startswith("/") else f"{directory}/{command}")
        if node is None:
            raise CommandNotFoundError(command, "is not in the image")
        if not _can_run(node):
            raise CommandNotFoundError(command, "is not executable")
        return
    candidates = (follow(root, f"{folder}/{command}") for folder in search.split(":") if folder)
    if not any(node is not None and _can_run(node) for node in candidates):
        raise CommandNotFoundError(command, f"is not in the image, neither in {search.replace(':', ' nor ')}")


def _can_run(node: Node) -> bool:
    return node.is_regular and bool(node.mode & 0o111)


def _user(user: str, read_file: ReadFile) -> tuple[int, int, tuple[int, ...], str]:
    """The ids, further groups and home of `user[:group]`, names or numbers."""
    name, _, group = user.partition(":")
    entries = _entries(read_file("etc/passwd"), 7, numbers=(2, 3))
    entry = next((own for own in entries if name in (own[0], own[2])), None) if name else None
    if entry is None and name and not name.isdecimal():
        raise UserNotFoundError(name, "/etc/passwd")
    uid = int(entry[2]) if entry else int(name or 0)
    root_home = next((own[5] for own in entries if own[2] == str(uid)), "/root" if uid == 0 else "/")
    groups = _entries(read_file("etc/group"), 4, numbers=(2,))
    if group:
        return uid, _group(group, groups), (), root_home
    further = tuple(int(own[2]) for own in groups if entry and entry[0] in own[3].split(","))
    return uid, int(entry[3]) if entry else 0, further, root_home


def _group(group: str, groups: list[list[str]]) -> int:
    found = next((own for own in groups if group in (own[0], own[2])), None)
    if found is None and not group.isdecimal():
        raise UserNotFoundError(group, "/etc/group")
    return int(found[2]) if found else int(group)


def _entries(raw: bytes, fields: int, numbers: tuple[int, ...]) -> list[list[str]]:
    lines = [line.split(":") for line in raw.decode("utf-8", "replace").splitlines()]
    return [line for line in lines if len(line) >= fields and all(line[at].isdecimal() for at in numbers)]
