"""What installed distributions say of themselves, and what is recorded of those that are installed elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from scripts.audit.licences import declared


@dataclass(frozen=True, slots=True)
class Installed:
    """One distribution: its version, what it asks for, and its licence if it names one that is known."""

    version: str
    requires: list[str]
    licence: str | None


def installed(places: Iterable[str] | None = None) -> dict[str, Installed]:
    """Return what is installed here, or in the folders `places`, by canonical name."""
    found: dict[str, Installed] = {}
    for each in distributions() if places is None else distributions(path=list(places)):
        if each.metadata["Name"]:
            found.setdefault(canonicalize_name(each.metadata["Name"]), _installed(each))
    return found


def _installed(each: Distribution) -> Installed:
    fields = {name: each.metadata.get_all(name) or [] for name in ("License-Expression", "License", "Classifier")}
    expression, field = (next(iter(fields[name]), None) for name in ("License-Expression", "License"))
    said = declared(expression, field, fields["Classifier"])
    return Installed(each.version.partition("+")[0], list(each.requires or ()), said)


def read_record(path: Path) -> dict[str, str | None]:
    """Return licences by `name==version`, as `write_record` has written them."""
    return {str(key): licence for key, licence in json.loads(path.read_text()).items()}


def write_record(path: Path, wanted: Mapping[str, str], found: Mapping[str, Installed]) -> list[str]:
    """Record the licences of those in `wanted` (versions by name) that are installed; return who is not."""
    there = {name for name, version in wanted.items() if name in found and found[name].version == version}
    record = {f"{name}=={wanted[name]}": found[name].licence for name in sorted(there)}
    path.write_text(json.dumps(record, indent=0) + "\n")
    return sorted(wanted.keys() - there)


def licence_of(
    name: str, version: str, found: Mapping[str, Installed], record: Mapping[str, str | None]
) -> str | None:
    """Return the licence of this very version, if it is installed or recorded, and names one."""
    here = found.get(name)
    if here is not None and here.version == version:
        return here.licence
    return record.get(f"{name}=={version}")
