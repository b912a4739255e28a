"""The packed weights: one block of memory, made once from a checkpoint and shared by all who serve it.

A large block is kept as a file that every engine process maps: they hold one copy between them, and start in
moments. Small ones, and those of which no file can be written, are packed into memory.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from copydesk.common.telemetry import get_logger
from copydesk.inference.engine.native.tensors import checkpoint_files

_log = get_logger(__name__)
_HEADER = struct.Struct("<8s32sQI")
_MAGIC = b"CDINT8\x00\x01"  # the last byte is the format's version: see csrc/int8_model.hpp
_HEADER_BYTES = 4096
_WORTH_A_FILE = 16 << 20  # bytes; less is packed in no time
_KEPT_FILES = 4
_CHUNK = 8 << 20
_UNFINISHED = ".packing-"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Block:
    """The block's address, and what keeps it there."""

    address: int
    owner: object


def packed_block(
    directory: Path, size: int, fill: Callable[[int], None], folder: Path, *, read_as: str = ""
) -> Block:
    """Return the block of `directory`, mapped from `folder` or packed by `fill`, which gets a zeroed address.

    `read_as` says how the checkpoint is understood, where that may differ for the same files.
    """
    if size < _WORTH_A_FILE:
        return _private(size, fill)
    key = _key(directory, size, read_as)
    path = folder / f"{key.hex()[:32]}.int8"
    block = _mapped(path, key, size)
    if block is not None:
        return block
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (block := _mapped(path, key, size)) is not None:  # another process has packed it meanwhile
                return block
            _write(path, key, size, fill)
    except OSError as error:
        _log.warning("packed_weights_not_kept", folder=str(folder), reason=error.strerror or str(error))
        return _private(size, fill)
    _prune(folder)
    return _mapped(path, key, size) or _private(size, fill)


def _private(size: int, fill: Callable[[int], None]) -> Block:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fill(address)
    return Block(address, memory)


def _key(directory: Path, size: int, read_as: str) -> bytes:
    """Tell one checkpoint from another, and a file from what replaced it, without reading all of it."""
    digest = hashlib.sha256(_MAGIC + size.to_bytes(8, "little") + read_as.encode())
    for path in (directory / "config.json", *checkpoint_files(directory)):
        status = path.stat()
        entry = (str(path.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        digest.update(repr(entry).encode())
    return digest.digest()


def _mapped(path: Path, key: bytes, size: int) -> Block | None:
    """Map a file that is whole, or return None."""
    try:
        with path.open("rb") as file:
            magic, found, length, checksum = _HEADER.unpack(file.read(_HEADER.size))
            whole = os.fstat(file.fileno()).st_size == _HEADER_BYTES + size
            if (magic, found, length, whole) != (_MAGIC, key, size, True) or _checksum(file.fileno()) != checksum:
                _log.warning("packed_weights_damaged", path=str(path))
                return None
            os.utime(path)
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, struct.error):
        return None
    data: NDArray[np.uint8] = np.frombuffer(memory, np.uint8)
    return Block(int(data.ctypes.data) + _HEADER_BYTES, data)


def _checksum(descriptor: int) -> int:
    """Of all behind the header; read and not mapped, so that it stays in no process's memory."""
    checksum, place = 0, _HEADER_BYTES
    while chunk := os.pread(descriptor, _CHUNK, place):
        checksum = zlib.crc32(chunk, checksum)
        place += len(chunk)
    return checksum


def _write(path: Path, key: bytes, size: int, fill: Callable[[int], None]) -> None:
    for left in path.parent.glob(f"{_UNFINISHED}*"):  # by a process that was killed, or it would hold the lock
        left.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_UNFINISHED, delete=False) as file:
        try:
            # Space is taken first: a full disk must be an error here, and not a fault when memory is written.
            os.posix_fallocate(file.fileno(), 0, _HEADER_BYTES + size)
            memory = mmap.mmap(file.fileno(), _HEADER_BYTES + size)
            start = ctypes.c_char.from_buffer(memory)
            fill(ctypes.addressof(start) + _HEADER_BYTES)
            del start
            memory.flush()
            memory.close()
            os.pwrite(file.fileno(), _HEADER.pack(_MAGIC, key, size, _checksum(file.fileno())), 0)
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _prune(folder: Path) -> None:
    """Remove what was used least recently; who has it mapped keeps it."""
    found = sorted(folder.glob("*.int8"), key=_last_use, reverse=True)
    for path in found[_KEPT_FILES:]:
        path.unlink(missing_ok=True)


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
