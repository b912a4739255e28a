"""What can go wrong while a checkpoint is made: each error says what to do about it."""

from __future__ import annotations

from pathlib import Path

from copydesk.common.errors import CopydeskError


class CheckpointError(CopydeskError):
    """A model directory cannot be made, or is not what it should be."""


class BaseModelUnavailableError(CheckpointError):
    """The base model is not installed and cannot be downloaded: `reason` says why, `command` gets it by hand."""

    def __init__(self, reason: str, command: str) -> None:
        self.reason = reason
        self.command = command
        super().__init__(f"the base model cannot be had: {reason}. Where there is a network, run: {command}")


class FileDigestError(CheckpointError):
    """A file's content is not the expected one: it was changed, cut short or replaced."""

    def __init__(self, path: Path, expected: str, found: str) -> None:
        self.path = path
        self.expected = expected
        self.found = found
        super().__init__(f"{path} has sha256 {found}, expected {expected}: remove it and get it again")


class UnsupportedGgufError(CheckpointError):
    """A GGUF file of another kind than a byte-level Llama decoder."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} cannot be converted: {reason}")


class AdapterError(CheckpointError):
    """An adapter that cannot be merged into these weights."""

    def __init__(self, directory: str, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"the adapter in {directory} cannot be merged: {reason}")


class CacheFullError(CheckpointError):
    """The disk is full; `needed` is in bytes and `directory` is where they were to go."""

    def __init__(self, directory: Path, needed: int, free: int) -> None:
        self.directory = directory
        self.needed = needed
        self.free = free
        super().__init__(
            f"{directory} has {free >> 20} MiB free, about {needed >> 20} MiB are needed: free some space, "
            "or set COPYDESK_CACHE_DIR to a folder on another disk"
        )


class CacheUnusableError(CheckpointError):
    """The cache folder cannot be written for another reason than space."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(
            f"{directory} cannot be written ({reason}): set COPYDESK_CACHE_DIR to a folder that can, "
            "by the user who runs Copydesk"
        )


class CorruptCheckpointError(CheckpointError):
    """A directory that does not match its own manifest."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        self.reason = reason
        super().__init__(f"{directory} is damaged: {reason}")
