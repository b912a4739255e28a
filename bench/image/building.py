"""The image as a registry has it: gzipped layers, configuration and manifest, pushed."""

from __future__ import annotations

import concurrent.futures
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from bench.image.content import ENVIRONMENT, PROGRAM_PATH, PYTHON, Entry
from copydesk.imagefetcher.registry.manifest import OCI_MANIFEST, Descriptor, Manifest, encode_json
from copydesk.imagefetcher.registry.options import RegistryOptions
from copydesk.imagefetcher.registry.reference import Reference
from copydesk.imagefetcher.registry.repository import Repository
from copydesk.imagefetcher.registry_upstream import this_platform

CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
GZIP_LEVEL = 6
"""Docker's."""


@dataclass(frozen=True)
class Layer:
    """A layer in a file: its digest, packed and plain, and both sizes in bytes."""

    path: Path
    digest: str
    size: int
    diff_id: str
    plain_size: int


def pack(content: Sequence[Sequence[Entry]], folder: Path, level: int = GZIP_LEVEL) -> list[Layer]:
    """Pack every layer into a file in `folder`, at gzip's `level`."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        paths = [folder / f"layer-{number}" for number in range(len(content))]
        return list(pool.map(_pack, content, paths, [level] * len(content)))


async def push(reference: str, options: RegistryOptions, packed: Sequence[Layer]) -> str:
    """Push an image of these layers; return its digest."""
    named = Reference.parse(reference)
    config = _config(packed)
    async with Repository(named, options) as repository:
        for layer in packed:
            await repository.blobs.upload(Descriptor(LAYER, layer.digest, layer.size), layer.path)
        await repository.blobs.upload_bytes(config)
        raw = encode_json(
            Manifest(
                schema_version=2,
                media_type=OCI_MANIFEST,
                config=Descriptor(CONFIG, _digest(config), len(config)),
                layers=tuple(Descriptor(LAYER, layer.digest, layer.size) for layer in packed),
            )
        )
        await repository.manifests.put(named.object, OCI_MANIFEST, raw)
    return _digest(raw)


def _config(packed: Sequence[Layer]) -> bytes:
    platform = this_platform()
    return json.dumps(
        {
            "os": platform.os,
            "architecture": platform.architecture,
            "config": {
                "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
                "Entrypoint": [PYTHON, PROGRAM_PATH],
                "Cmd": ["start"],
            },
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in packed]},
        }
    ).encode()


class _Tally:
    """A file that hashes and counts what is written to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def _pack(entries: Sequence[Entry], path: Path, level: int) -> Layer:
    with path.open("wb") as file:
        packed = _Tally(file)
        with gzip.GzipFile("", "wb", level, cast(IO[bytes], packed), mtime=0) as stream:
            plain = _Tally(cast(IO[bytes], stream))
            with tarfile.open(fileobj=cast(IO[bytes], plain), mode="w|", format=tarfile.PAX_FORMAT) as archive:
                _add_folders(archive, entries)
                for entry in entries:
                    _add(archive, entry)
    return Layer(path, packed.digest, packed.size, plain.digest, plain.size)


def _add_folders(archive: tarfile.TarFile, entries: Sequence[Entry]) -> None:
    folders = {str(folder) for entry in entries for folder in Path(entry.name).parents} - {"."}
    for folder in sorted({*folders, "proc", "sys", "dev", "tmp", "etc"}):
        info = tarfile.TarInfo(folder)
        info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
        archive.addfile(info)


def _add(archive: tarfile.TarFile, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    info.size, info.mode = entry.size, entry.mode
    if entry.source is None:
        archive.addfile(info, io.BytesIO(entry.content))
        return
    # Compiled Python files name the second of their source.
    info.mtime = int(entry.source.stat().st_mtime)
    with entry.source.open("rb") as file:
        archive.addfile(info, file)


def _digest(raw: bytes) -> str:
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"
