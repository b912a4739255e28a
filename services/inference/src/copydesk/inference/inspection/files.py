"""Which files of a directory hold the weights, and what is wrong with them as files. Only headers are opened."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from copydesk.inference.engine.native.files import INDEX, PICKLED, SINGLE, leads_outside
from copydesk.inference.inspection.headers import HeaderError, Stored, read_header
from copydesk.inference.inspection.report import Problem, error, warning

LARGEST_JSON = 64 << 20
_SHARD = re.compile(r".+-\d{5}-of-\d{5}\.safetensors")
_AGAIN = "get the file again"


@dataclass(slots=True)
class Weights:
    """The tensors that were found, and the files that they are in."""

    tensors: dict[str, Stored] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    whole: bool = True
    """Whether every file could be read, so that what is not there is missing."""


def read_weights(directory: Path) -> Weights:
    """Look at the weights in a directory, which must be one."""
    found = Weights()
    found.problems += look_at_files(directory)
    names = _weight_files(directory, found)
    for name in names:
        _read(directory, name, found)
    _compare_with_index(directory, found)
    found.whole = not any(problem.severity == "error" for problem in found.problems)
    return found


def look_at_files(directory: Path) -> Iterator[Problem]:
    """Say what is wrong with files as such: links that lead outside, and pickled data."""
    paths = sorted(directory.iterdir())
    for path in paths:
        if path.is_symlink():
            yield from _link_problems(directory, path)
    pickles = [path.name for path in paths if path.suffix.lower() in PICKLED]
    if not pickles:
        return
    if any(path.suffix == ".safetensors" or path.name == INDEX for path in paths):
        yield warning(some(pickles), "pickled data is not opened", "remove it if nothing else needs it")
        return
    what = "the weights are pickled data, which can run any program as it is read; it was not opened"
    yield error(some(pickles), what, "convert it to safetensors where it is trusted (save_pretrained does)")


def _link_problems(directory: Path, path: Path) -> Iterator[Problem]:
    try:
        outside = leads_outside(directory, path)
    except (OSError, RuntimeError):
        yield error(path.name, "it is a link that leads nowhere", _AGAIN)
        return
    if outside:
        yield error(
            path.name,
            "it is a link to a file outside of the directory, which may change without it",
            "copy the file itself",
        )


def _weight_files(directory: Path, found: Weights) -> list[str]:
    index = directory / INDEX
    shards = sorted(path.name for path in directory.glob("*.safetensors"))
    if not index.exists():
        if SINGLE in shards:
            found.problems += _leftovers(shards, {SINGLE})
            return [SINGLE]
        found.problems += _nothing_there(shards, pickled=bool(found.problems))
        return []
    content = _index(index, found)
    names = sorted(set(content.values()))
    if SINGLE in shards and SINGLE not in names:
        what = "it is there beside an index; this engine reads what the index names, others may read this"
        found.problems.append(warning(SINGLE, what, "remove one of them"))
    found.problems += _leftovers(shards, {*names, SINGLE})
    return [name for name in names if _is_there(directory, name, found)]


def _nothing_there(shards: list[str], *, pickled: bool) -> Iterator[Problem]:
    if any(_SHARD.fullmatch(name) for name in shards):
        yield error(INDEX, "there is no index for the shards that are there", "get it again")
    elif not pickled:
        yield error(SINGLE, "there is no such file, and no index of shards", "get the weights again")


def _leftovers(shards: list[str], read: set[str]) -> Iterator[Problem]:
    for name in shards:
        if name in read:
            continue
        if _SHARD.fullmatch(name):
            yield error(name, f"it is a shard that {INDEX} does not name", "get both again")
        else:
            yield warning(name, "it is not read, since nothing names it")


def _index(path: Path, found: Weights) -> dict[str, str]:
    try:
        if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > LARGEST_JSON:
            raise ValueError(f"expected a file of {LARGEST_JSON >> 20} MiB at the most")
        content = json.loads(path.read_bytes())["weight_map"]
        if not content or not all(isinstance(one, str) for one in content.values()):
            raise ValueError("weight_map is empty, or names no files")
        return dict(content)
    except KeyError:
        found.problems.append(error(INDEX, "it has no weight_map", _AGAIN))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        found.problems.append(error(INDEX, f"it cannot be read: {reason}", _AGAIN))
    return {}


def _is_there(directory: Path, name: str, found: Weights) -> bool:
    if Path(name).name != name or name in ("", ".", ".."):
        found.problems.append(error(INDEX, f"it names a file outside of the directory, {name!r}"))
        return False
    if not (directory / name).exists():
        found.problems.append(error(name, f"the shard is missing, which {INDEX} names", "get it again"))
        return False
    return True


def _read(directory: Path, name: str, found: Weights) -> None:
    path = directory / name
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            found.problems.append(error(name, "it is no ordinary file"))
            return
        tensors = read_header(path)
    except HeaderError as problem:
        found.problems.append(error(name, str(problem), _AGAIN))
        return
    except OSError as problem:
        found.problems.append(error(name, f"it cannot be read: {problem.strerror or problem}"))
        return
    found.files.append(name)
    for tensor in tensors:
        other = found.tensors.setdefault(tensor.name, tensor)
        if other is not tensor:
            what = f"tensor {tensor.name} is there, and in {other.file} too"
            found.problems.append(error(name, what, "get the files again"))


def _compare_with_index(directory: Path, found: Weights) -> None:
    if not found.files or not (directory / INDEX).exists():
        return
    content = _index(directory / INDEX, Weights())
    read = set(found.files)
    absent = [name for name, file in content.items() if file in read and _file_of(found, name) != file]
    if absent:
        what = f"it looks for {some(absent)} where they are not"
        found.problems.append(error(INDEX, what, _AGAIN))
    unnamed = sorted(found.tensors.keys() - content.keys())
    if unnamed:
        found.problems.append(warning(INDEX, f"it does not name {some(unnamed)}, which the shards hold"))


def _file_of(found: Weights, name: str) -> str:
    return found.tensors[name].file if name in found.tensors else ""


def some(names: list[str]) -> str:
    """Name the first few, and say how many more there are."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
