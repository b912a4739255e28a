"""Where things lie in the run folder. Standard library only: the holder uses it too."""

from __future__ import annotations

from pathlib import Path

RUN_DIR = "/run/copydesk/imagefetcher"


def holder_socket(run: Path) -> Path:
    """Where the holder listens."""
    return run / "holder.sock"


def control_socket(run: Path) -> Path:
    """Where the daemon listens."""
    return run / "control.sock"


def snapshotter_socket(run: Path) -> Path:
    """Where the snapshotter listens."""
    return run / "snapshotter.sock"


def device_folder(run: Path) -> Path:
    """Where the devices of all images are, one file each."""
    return run / "devices"
