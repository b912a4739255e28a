"""Sentences that two versions of a model answer differently, in a file for whoever has to judge a rollout.

They are what people wrote. So nothing is kept unless a file was named, only its owner can read it, and only so
many go there; none of it is in a message, a log line or a metric.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from copydesk.common.telemetry import get_logger

_log = get_logger(__name__)


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file: the sentence, what a client got for it, and what the candidate would have answered."""

    rollout: str
    text: str
    baseline: str
    candidate: str


class Examples:
    """Adds to the file at `path`, at most `most` sentences of each rollout; None keeps nothing."""

    def __init__(self, path: Path | None, most: int) -> None:
        self._path = path
        self._most = most
        self._left = 0
        self._rollout = ""

    def begin(self, rollout: str) -> None:
        """Count anew, for another rollout."""
        self._rollout = rollout
        self._left = 0 if self._path is None else self._most

    def keep(self, text: str, baseline: str, candidate: str) -> None:
        """Add a sentence, if the answers differ and there is room; a file that cannot be written is given up."""
        if self._path is None or self._left <= 0 or baseline == candidate:
            return
        self._left -= 1
        example = Example(rollout=self._rollout, text=text, baseline=baseline, candidate=candidate)
        try:
            _append(self._path, msgspec.json.encode(example) + b"\n")
        except OSError as error:
            self._left = 0
            _log.warning("rollout_examples_lost", path=str(self._path), error=error.strerror or str(error))


def _append(path: Path, line: bytes) -> None:
    """Add a line in one piece, since several processes may share the file; a new one is its owner's alone."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
