"""What a node needs to serve containerd: two systemd units, and a few lines of containerd's configuration.

The holder and the daemon are units apart, in control groups of their own: whatever ends the daemon must not end
the holder (https://github.com/containerd/stargz-snapshotter/issues/2387). A configuration of containerd that is
there already is never rewritten: an imported file replaces whole sections of plugins, so the lines about CRI have
to stand beside what else is said there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.paths import snapshotter_socket

NAME = "copydesk"
CONFIG = Path("/etc/containerd/config.toml")
DROP_IN = Path("/etc/containerd/conf.d/copydesk.toml")
ENVIRONMENT = Path("/etc/copydesk/imagefetcher.env")
_UNITS = Path("/etc/systemd/system")
HOLDER_UNIT = _UNITS / "copydesk-image-holder.service"
DAEMON_UNIT = _UNITS / "copydesk-imagefetcher.service"
_CRI = "io.containerd.grpc.v1.cri"


class InstallationError(ImageError):
    """A configuration that cannot be read, or a file that cannot be written; it carries path and reason."""

    hint = "Run it as root, on a node with containerd 1.6 or 1.7."

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class Choice:
    """What units are made for: which Python, and the daemon's two folders."""

    python: Path
    state_dir: Path
    run_dir: Path


@dataclass(frozen=True, slots=True)
class Plan:
    """Files to be written, by their paths, and what is left for a person to do."""

    files: dict[Path, str]
    left: tuple[str, ...]


def plan(choice: Choice, config: str | None, environment: str | None = None) -> Plan:
    """What to write on a node whose containerd has this configuration (None: none at all).

    `environment` is what the settings' file holds, if there is one: it stays, and what it lacks is left to do.

    Raises InstallationError for a configuration that cannot be read.
    """
    files = {
        HOLDER_UNIT: _holder_unit(choice),
        DAEMON_UNIT: _daemon_unit(choice),
        ENVIRONMENT: _environment(choice),
        DROP_IN: _proxy_plugin(choice),
    }
    lacking = "" if environment is None else _lacking(environment, files[ENVIRONMENT])
    amended = (f"in {ENVIRONMENT}, which stays as it is, set:\n{lacking}",) if lacking else ()
    after = (*amended, "systemctl daemon-reload", f"systemctl enable --now {HOLDER_UNIT.name} {DAEMON_UNIT.name}")
    restart = "systemctl restart containerd"
    if config is None:
        return Plan(
            files | {CONFIG: f'version = 2\nimports = ["{DROP_IN.parent}/*.toml"]\n\n{_CRI_LINES}'},
            (*after, restart),
        )
    missing = missing_lines(_parse(config))
    edits = (f"in {CONFIG}, which stays as it is, set:\n{missing}",) if missing else ()
    return Plan(files, (*after, *edits, restart))


def missing_lines(config: Mapping[str, Any]) -> str:
    """What a configuration of containerd lacks; empty if nothing."""
    lines = []
    if not any(str(name).startswith(str(DROP_IN.parent)) for name in config.get("imports", ())):
        lines.append(f'imports = ["{DROP_IN.parent}/*.toml"]')
    own = config.get("plugins", {}).get(_CRI, {}).get("containerd", {})
    if own.get("snapshotter") != NAME or own.get("disable_snapshot_annotations", True) is not False:
        lines.append(_CRI_LINES.rstrip())
    return "\n".join(lines)


def write(files: Mapping[Path, str], root: Path) -> list[Path]:
    """Write what differs from what is there, below `root`; return which that were. Raises InstallationError."""
    written = []
    for path, text in files.items():
        place = root / path.relative_to("/")
        try:
            if place.exists() and (path == ENVIRONMENT or place.read_text() == text):
                continue  # the environment is for people to change
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        except OSError as error:
            raise InstallationError(place, error.strerror or str(error)) from error
        written.append(path)
    return written


def read(path: Path, root: Path) -> str | None:
    """What a file below `root` holds, None if there is none. Raises InstallationError."""
    place = root / path.relative_to("/")
    try:
        return place.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InstallationError(place, str(error)) from error


_CRI_LINES = f"""\
[plugins."{_CRI}".containerd]
  snapshotter = "{NAME}"
  disable_snapshot_annotations = false
"""


def _lacking(environment: str, planned: str) -> str:
    """The planned settings that a file of settings does not have."""
    there = {line.strip() for line in environment.splitlines()}
    return "\n".join(line for line in planned.splitlines() if not line.startswith("#") and line not in there)


def _parse(config: str) -> dict[str, Any]:
    try:
        parsed = tomllib.loads(config)
    except tomllib.TOMLDecodeError as error:
        raise InstallationError(CONFIG, str(error)) from error
    if parsed.get("version") != 2:
        raise InstallationError(CONFIG, f"is of version {parsed.get('version', 1)}, only version 2 is understood")
    return parsed


def _proxy_plugin(choice: Choice) -> str:
    return f"""\
version = 2
[proxy_plugins.{NAME}]
  type = "snapshot"
  address = "{snapshotter_socket(choice.run_dir)}"
"""


def _environment(choice: Choice) -> str:
    return f"""\
# Settings of the image fetcher; copydesk's docs/operations.md lists them.
COPYDESK_IMAGEFETCHER_SNAPSHOTTER=true
COPYDESK_IMAGEFETCHER_STATE_DIR={choice.state_dir}
COPYDESK_IMAGEFETCHER_RUN_DIR={choice.run_dir}
"""


def _holder_unit(choice: Choice) -> str:
    return f"""\
[Unit]
Description=Copydesk: keeps the images' devices while their daemon restarts
Before={DAEMON_UNIT.name} containerd.service

[Service]
EnvironmentFile={ENVIRONMENT}
ExecStart={choice.python} -m copydesk.imagefetcher.holder
Restart=always
OOMScoreAdjust=-900

[Install]
WantedBy=multi-user.target
"""


def _daemon_unit(choice: Choice) -> str:
    return f"""\
[Unit]
Description=Copydesk: lazily loaded container images
After=network-online.target {HOLDER_UNIT.name}
Wants=network-online.target {HOLDER_UNIT.name}
Before=containerd.service

[Service]
EnvironmentFile={ENVIRONMENT}
ExecStart={choice.python} -m copydesk.imagefetcher
Restart=always
RestartSec=1
# Mounts must be seen by containerd: no mount namespace of its own.
PrivateMounts=no
OOMScoreAdjust=-500
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""
