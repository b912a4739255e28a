"""The processes of a fleet and what they have started, by name: `gateway`, `pod-1`, `pod-1/engine-0` (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_PROC = Path("/proc")
_NAME = b"--name="
_TITLED = "copydesk"
"""Processes of a pod call themselves `copydesk engine-0 <model>` once they have begun."""


def families(roots: Mapping[str, int]) -> dict[int, str]:
    """Name each process of `roots` (name to pid) and each one below it that is no root itself."""
    children = _children()
    named = {pid: name for name, pid in roots.items()}
    for name, pid in roots.items():
        for below in _below(pid, children, set(named)):
            named[below] = f"{name}/{_own_name(below)}"
    return named


def kin(pid: int) -> tuple[int, ...]:
    """Return a process and all that it has started, itself first."""
    return (pid, *_below(pid, _children(), set()))


def called(pid: int, start: str) -> tuple[int, ...]:
    """Return those of a process's kin whose own name starts so: `engine`, `worker`."""
    return tuple(one for one in kin(pid)[1:] if _own_name(one).startswith(start))


def _below(pid: int, children: Mapping[int, list[int]], apart: set[int]) -> Iterator[int]:
    for child in children.get(pid, ()):
        if child not in apart:
            yield child
            yield from _below(child, children, apart)


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.scandir(_PROC):
        if entry.name.isdigit() and (parent := _parent(int(entry.name))) is not None:
            found.setdefault(parent, []).append(int(entry.name))
    return found


def _parent(pid: int) -> int | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name of the program, in parentheses, may hold anything; state and parent come behind the last of them.
    return int(stat.rpartition(b")")[2].split()[1])


def _own_name(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return str(pid)
    named = next((word[len(_NAME) :] for word in words if word.startswith(_NAME)), b"")
    title = words[0].decode("utf-8", "replace").split()
    if not named and len(title) > 1 and title[0] == _TITLED:
        return title[1]
    return named.decode("utf-8", "replace") or Path(words[0].decode("utf-8", "replace")).name
