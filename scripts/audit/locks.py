"""Which versions are locked, and which of them each service, the command and the tools bring along."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOOLS = "tools"
VLLM = "vllm"
LOCK = Path("constraints.txt")
VLLM_LOCK = Path("services/inference/constraints-vllm.txt")

_PIN = re.compile(r"([A-Za-z0-9][\w.-]*)==(\S+)")


@dataclass(frozen=True, slots=True)
class Locked:
    """One distribution in the version that is installed, and the sets that it is part of."""

    name: str
    version: str
    sets: tuple[str, ...]

    @property
    def for_tools_alone(self) -> bool:
        """Whether no image and no fleet has it, only those who work on the project."""
        return self.sets == (TOOLS,)


def pins(text: str) -> dict[str, str]:
    """Return the versions by name in a file of constraints, names in their canonical form."""
    found = (_PIN.match(line) for line in text.splitlines())
    return {canonicalize_name(match[1]): match[2] for match in found if match}


def wanted(text: str) -> list[str]:
    """Return the requirements in a file of them, without comments."""
    lines = (line.split("  #")[0].strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def brought_by(roots: Iterable[str], requires: Mapping[str, list[str]]) -> set[str]:
    """Return the names of all that `roots` bring along, themselves included.

    Args:
        roots: requirements, with extras and markers if they have them.
        requires: what each installed distribution asks for, by its canonical name.
    """
    environment = {name: str(value) for name, value in default_environment().items()}
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(root), "") for root in roots]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate(environment | {"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for chosen in ("", *requirement.extras):
            if (name, chosen) not in seen:
                seen.add((name, chosen))
                waiting += [(Requirement(text), chosen) for text in requires.get(name, [])]
    return {name for name, _ in seen}


def locked_sets(root: Path, requires: Mapping[str, list[str]]) -> tuple[list[Locked], list[str]]:
    """Return all that is locked with its sets, and the names that are brought along without a lock.

    What nothing here brings along (on this system) counts as part of every service: that is the stricter rule.
    """
    roots = {path.parent.name: [_name(path)] for path in sorted((root / "services").glob("*/pyproject.toml"))}
    roots["cli"] = [f"{_name(root / 'apps/cli/pyproject.toml')}[fleet]"]
    tools = [*wanted((root / "requirements-dev.txt").read_text()), "hatchling", "editables"]
    requires = {**requires, **own_requirements(root)}
    names = {part: brought_by(which, requires) for part, which in (roots | {TOOLS: tools}).items()}
    ours = pins((root / LOCK).read_text())
    locked = [Locked(name, version, _sets(name, names)) for name, version in sorted(ours.items())]
    of_vllm = pins((root / VLLM_LOCK).read_text())
    locked += [Locked(name, version, (VLLM,)) for name, version in sorted(of_vllm.items())]
    own = {name for name in set().union(*names.values()) if name.startswith("copydesk")}
    return locked, sorted(set().union(*names.values()) - own - ours.keys())


def own_requirements(root: Path) -> dict[str, list[str]]:
    """Return what the project's own distributions ask for, from the files that say so, by canonical name."""
    requires: dict[str, list[str]] = {}
    for path in sorted(root.glob("*/*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        extras = project.get("optional-dependencies", {})
        optional = [f'{text}; extra == "{extra}"' for extra, texts in extras.items() for text in texts]
        requires[canonicalize_name(project["name"])] = [*project.get("dependencies", ()), *optional]
    return requires


def _sets(name: str, names: Mapping[str, set[str]]) -> tuple[str, ...]:
    runtime = tuple(part for part, brought in names.items() if name in brought and part != TOOLS)
    if runtime:
        return runtime
    return (TOOLS,) if name in names[TOOLS] else ("unclaimed",)


def _name(pyproject: Path) -> str:
    return str(tomllib.loads(pyproject.read_text())["project"]["name"])
