"""A start-up trace: which byte ranges of which files a program read before its first output, and when.

It names files, not places on a device, so that a trace recorded with one conversion of an image orders the next
one, and mostly also fits a newer build of the same image.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from copydesk.imagefetcher.errors import ImageError

VERSION: Final = 1
MAX_TRACE_BYTES: Final = 256 << 20


class TraceFormatError(ImageError):
    """A trace that cannot be used; `reason` says why."""

    hint = "Record one with: copydesk image trace REF -- COMMAND"

    def __init__(self, reason: str) -> None:
        super().__init__(f"trace: {reason}")
        self.reason = reason


def path_text(path: bytes) -> str:
    r"""A file's name as text: a byte that is not UTF-8, and a backslash, as `\xNN`."""
    return path.replace(b"\\", rb"\x5c").decode("utf-8", "backslashreplace")


def path_bytes(text: str) -> bytes:
    """The name that `path_text` wrote."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes.fromhex(match[1].decode()), text.encode())


class FileRead(msgspec.Struct, frozen=True):
    """A range that was read: `path` from the image's root without a leading slash, as in `usr/bin/python3`.

    It is written as by `path_text`, since names need not be UTF-8. `offset` and `length` are in bytes, `at` is in
    seconds since the start.
    """

    path: str
    offset: int
    length: int
    at: float = 0.0


class Trace(msgspec.Struct, frozen=True):
    """What a start-up read, in the order in which it did. `image` is the digest of the manifest that was run."""

    version: int
    reads: tuple[FileRead, ...]
    image: str = ""
    command: tuple[str, ...] = ()


def encode_trace(trace: Trace) -> bytes:
    """The trace as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(trace), indent=1) + b"\n"


def decode_trace(raw: bytes) -> Trace:
    """The trace in `raw`; raises TraceFormatError for anything that is not one."""
    if len(raw) > MAX_TRACE_BYTES:
        raise TraceFormatError(f"has {len(raw)} bytes, at most {MAX_TRACE_BYTES} are read")
    try:
        trace = msgspec.json.decode(raw, type=Trace)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise TraceFormatError(str(error)) from error
    if trace.version != VERSION:
        raise TraceFormatError(f"is of version {trace.version}, this release reads {VERSION}")
    for read in trace.reads:
        if read.offset < 0 or read.length < 0:
            raise TraceFormatError(f"reads {read.length} bytes at {read.offset} of {read.path}")
    return trace
