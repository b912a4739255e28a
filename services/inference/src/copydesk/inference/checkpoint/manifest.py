"""What a prepared directory must contain: sizes and digests of its files, and one digest for the whole.

The digest names the weights: a pod reports it, and answers are cached under it. It covers every file that has a
say in what the model writes, in full; reading 300 MB takes a quarter of a second, and nothing less tells two
fine-tunings of one base apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from copydesk.inference.checkpoint.errors import CorruptCheckpointError

MANIFEST = "copydesk-manifest.json"
QUANTISATION_REPORT = "quantisation-report.json"
"""What a quantised model lost: it stands beside the weights, and has no say in what the model writes."""

_UNCOUNTED = {MANIFEST, QUANTISATION_REPORT}
_COUNTED = {".json", ".jinja", ".model", ".safetensors"}


class FileEntry(msgspec.Struct, frozen=True):
    """A file's size in bytes and its sha256."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`key` tells what the directory was made from, `digest` what it holds."""

    key: str
    digest: str
    files: dict[str, FileEntry]


def describe(directory: Path, key: str) -> Manifest:
    """Read every file that counts and make the manifest of `directory`."""
    files = {path.name: _entry(path) for path in _counted_files(directory)}
    return Manifest(key=key, digest=_whole_digest(files), files=files)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Put `manifest` into `directory`."""
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (directory / MANIFEST).write_bytes(content + b"\n")


def read_manifest(directory: Path) -> Manifest:
    """The manifest in `directory`, without a look at the files.

    Raises:
        CorruptCheckpointError: There is none, or it is none.
    """
    try:
        return msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
    except OSError as error:
        raise CorruptCheckpointError(directory, f"{MANIFEST}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise CorruptCheckpointError(directory, f"{MANIFEST}: {error}") from error


def check_sizes(directory: Path) -> Manifest:
    """Compare names and sizes with the manifest: what every process of a pod can afford.

    Raises:
        CorruptCheckpointError: A file is missing, has another size, or is not in the manifest.
    """
    manifest = read_manifest(directory)
    found = {path.name: path.stat().st_size for path in _counted_files(directory)}
    expected = {name: entry.size for name, entry in manifest.files.items()}
    for name in sorted(found.keys() | expected.keys()):
        if found.get(name) != expected.get(name):
            raise CorruptCheckpointError(
                directory, f"{name} has {_bytes(found, name)}, not {_bytes(expected, name)}"
            )
    return manifest


def check_contents(directory: Path) -> Manifest:
    """Compare every byte with the manifest.

    Raises:
        CorruptCheckpointError: A file differs.
    """
    manifest = check_sizes(directory)
    for name, entry in manifest.files.items():
        if _entry(directory / name) != entry:
            raise CorruptCheckpointError(directory, f"the content of {name} has changed")
    return manifest


def read_digest(directory: Path) -> str:
    """The sha256 that names the model in `directory`.

    A prepared directory has it in its manifest; any other is read in full, and gives the same answer for the
    same files wherever they lie.

    Raises:
        CorruptCheckpointError: There is no model in `directory`.
    """
    try:
        return check_sizes(directory).digest
    except CorruptCheckpointError:
        files = {path.name: _entry(path) for path in _counted_files(directory)}
    if "config.json" not in files:
        raise CorruptCheckpointError(directory, "there is no config.json")
    return _whole_digest(files)


def _counted_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(
        path
        for path in directory.iterdir()
        if path.suffix in _COUNTED and path.name not in _UNCOUNTED and path.name[0] != "." and path.is_file()
    )


def _entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileEntry(size=file.tell(), sha256=digest.hexdigest())


def _whole_digest(files: Mapping[str, FileEntry]) -> str:
    lines = (f"{entry.sha256}  {name}\n" for name, entry in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def _bytes(sizes: Mapping[str, int], name: str) -> str:
    return f"{sizes[name]} bytes" if name in sizes else "no place"
