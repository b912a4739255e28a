"""A model profile as a file: YAML, strict in what it takes, the same in every write."""

from __future__ import annotations

import datetime
import math
import re
import typing
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import yaml

from copydesk.common.profile.errors import ProfileError
from copydesk.common.profile.parts import DIGEST, NAME, VERSION, WORD, CapacityPart, Profile
from copydesk.common.strict_yaml import YamlFileError, read_yaml_file
from copydesk.common.whole_file import replace_file

_HEADING = "# A model profile of Copydesk: what is known of a model before it serves.\n"
_PATTERNS = {
    NAME: "1 to 64 letters, digits, '_' or '-'",
    DIGEST: "64 hexadecimal digits, a SHA-256",
    WORD: "a word in small letters",
}
_PLACE = re.compile(r" - at `\$\.?(.*)`\Z")
_STEP = re.compile(r"\w+|\[\d+\]")
_RARE_BREAKS = re.compile("[\r\x85\u2028\u2029]")
_NO_VALUE = object()


def read_profile(path: Path) -> Profile:
    """Read the profile in a file.

    Raises:
        ProfileError: The file cannot be read, or `profile_of` refuses what is in it.
    """
    try:
        content = read_yaml_file(path)
    except YamlFileError as error:
        raise ProfileError(str(path), "", error.reason) from error
    return profile_of(content, str(path))


def profile_of(content: Any, source: str) -> Profile:
    """Check what a file holds, and return it as a profile; `source` names it in errors.

    Raises:
        ProfileError: It is none, is of a newer version, or contradicts itself.
    """
    if not isinstance(content, dict):
        raise ProfileError(source, "", "expected a mapping, with version, model, prompt, created_at, tool")
    _check_version(content, source)
    try:
        profile = msgspec.convert(content, Profile)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _explained(error, content, source) from error
    for key, problem in _faults(profile):
        raise ProfileError(source, key, problem)
    return profile


def encode_profile(profile: Profile) -> bytes:
    """Return the profile as the bytes of its file."""
    content = _without_gaps(msgspec.to_builtins(profile, builtin_types=(datetime.datetime,)))
    content["created_at"] = _utc(profile.created_at)
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return (_HEADING + text).encode()


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile in one step: whoever reads the file finds the old one or the new one, whole.

    Raises:
        ProfileError: The file cannot be written.
    """
    try:
        replace_file(path, encode_profile(profile))
    except OSError as error:
        raise ProfileError(str(path), "", error.strerror or str(error)) from error


def _check_version(content: dict[Any, Any], source: str) -> None:
    version = content.get("version", _NO_VALUE)
    if version is _NO_VALUE:
        raise ProfileError(source, "version", f"it is missing; expected {VERSION}")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ProfileError(source, "version", f"{version!r}; expected {VERSION}")
    if version > VERSION:
        raise ProfileError(source, "version", f"{version}; this Copydesk reads {VERSION}: use a newer one")


def _explained(error: Exception, content: Any, source: str) -> ProfileError:
    """Put the library's complaint in terms of the key, the value that is there, and what was expected."""
    text = str(error)
    found = _PLACE.search(text)
    place = found.group(1) if found else ""
    said = text[: found.start()] if found else text
    named = re.fullmatch(r"Object (?:contains unknown|missing required) field `(.*)`", said)
    if named is None:
        return ProfileError(source, place, f"{_shown(_at(content, place))}; {_in_words(said)}")
    key = f"{place}.{named.group(1)}" if place else named.group(1)
    if "missing" in said:
        return ProfileError(source, key, "it is missing")
    return ProfileError(source, key, f"there is no such key; there are {', '.join(_keys(place))}")


def _in_words(said: str) -> str:
    for pattern, words in _PATTERNS.items():
        if pattern.encode("unicode_escape").decode() in said or pattern in said:
            return f"expected {words}"
    return (said[:1].lower() + said[1:]).replace("`", "")


def _keys(place: str) -> tuple[str, ...]:
    """Name the keys that there are at a place."""
    type_: Any = Profile
    for step in _STEP.findall(place):
        if step.startswith("["):
            continue
        hint = typing.get_type_hints(type_)[step]
        type_ = next((one for one in (hint, *typing.get_args(hint)) if hasattr(one, "__struct_fields__")), type_)
    return tuple(type_.__struct_fields__)


def _at(content: Any, place: str) -> Any:
    for step in _STEP.findall(place):
        key = int(step[1:-1]) if step.startswith("[") else step
        try:
            content = content[key]
        except (LookupError, TypeError):
            return _NO_VALUE
    return content


def _shown(value: Any) -> str:
    text = "" if value is _NO_VALUE else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _faults(profile: Profile) -> Iterator[tuple[str, str]]:
    """Say what the types alone let pass and cannot be in a profile: keys, and what is wrong with them."""
    if profile.capacity is not None:
        for key, problem in _capacity_faults(profile.capacity):
            yield f"capacity.{key}", problem


def _capacity_faults(capacity: CapacityPart) -> Iterator[tuple[str, str]]:
    low, high = capacity.interval
    if not 0 <= low <= capacity.max_rate <= (math.inf if high is None else high):
        yield "interval", f"[{low:g}, {high}]; expected to hold max_rate, {capacity.max_rate:g}"
    if capacity.target_concurrency > capacity.concurrency:
        yield (
            "target_concurrency",
            f"{capacity.target_concurrency:g}; expected at most concurrency, {capacity.concurrency:g}",
        )
    if any(not (0 < point.concurrency < math.inf and 0 < point.rate < math.inf) for point in capacity.curve):
        yield "curve", "a point is not above 0 in both its figures"
    if any(before.concurrency >= after.concurrency for before, after in pairwise(capacity.curve)):
        yield "curve", "expected to ascend in concurrency"


def _without_gaps(content: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is None, but for the end of an interval."""
    return {
        key: _without_gaps(value) if isinstance(value, dict) else value
        for key, value in content.items()
        if value is not None
    }


def _utc(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")


class _Dumper(yaml.SafeDumper):
    """Writes short lists on one line, as people do."""


def _represent_list(dumper: yaml.SafeDumper, values: Any) -> yaml.Node:
    flat = not any(isinstance(value, list | tuple | dict) for value in values)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=flat)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    """Escape the rarer line breaks, which the library loses where it does not (in plain and single quotes)."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _RARE_BREAKS.search(text) else None)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(tuple, _represent_list)
