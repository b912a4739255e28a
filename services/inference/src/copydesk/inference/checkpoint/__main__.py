"""`python -m copydesk.inference.checkpoint PATH`: have the model that pods look for at PATH, then end.

For the container that runs before pods do. The last part of PATH is the model's name. The default one is prepared
in the cache folder, which pods have to share, and PATH becomes a link to it: one path for whatever version it is.
Any other model must be there already. Progress and result are lines of the log.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from copydesk.common.errors import CopydeskError
from copydesk.common.settings import EXIT_BAD_SETTINGS
from copydesk.common.telemetry import configure_logging, get_logger
from copydesk.inference.checkpoint.errors import CheckpointError
from copydesk.inference.checkpoint.manifest import read_digest
from copydesk.inference.checkpoint.prepare import Progress, prepare_default_model
from copydesk.models import gec_en

PERCENT = 10
"""A line whenever so much more is done, beside one for each stage."""

_log = get_logger(__name__)


class MissingModelError(CheckpointError):
    """A model other than the default one is not there: it carries where it was looked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"there is no config.json in {path}: put the model's directory there, or name {gec_en.NAME}, "
            "which is prepared"
        )


def main(arguments: Sequence[str]) -> int:
    """Have the model; return the exit code, 2 when that is impossible."""
    if len(arguments) != 1:
        print("usage: python -m copydesk.inference.checkpoint PATH", file=sys.stderr)
        return EXIT_BAD_SETTINGS
    # As the first process of a container it would not be ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda signum, _frame: sys.exit(128 + signum))
    configure_logging("model")
    path = Path(arguments[0])
    try:
        have_model(path)
        _log.info("model_ready", path=str(path), directory=str(path.resolve()), digest=read_digest(path))
    except (CopydeskError, OSError) as error:
        print(f"copydesk model: {error}", file=sys.stderr)
        return EXIT_BAD_SETTINGS
    return 0


def have_model(path: Path) -> None:
    """Return once a model is there; a directory that is no link is taken as it is.

    Raises:
        MissingModelError: it is not the default one, and not there.
        CheckpointError: the default model cannot be prepared; the text says what to do.
        OSError: the link cannot be made.
    """
    if path.name == gec_en.NAME and (path.is_symlink() or not path.exists()):
        _point(path, prepare_default_model(_progress()))
    elif not (path / "config.json").is_file():
        raise MissingModelError(path)


def _point(link: Path, target: Path) -> None:
    """Make the link, or change it in one go. It is relative, since pods may have the folder at another place."""
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(os.path.relpath(target.resolve(), link.parent.resolve()))
    new.replace(link)


def _progress() -> Progress:
    last = ("", -PERCENT)

    def tell(stage: str, share: float) -> None:
        nonlocal last
        percent = int(share * 100)
        if stage != last[0] or percent - last[1] >= PERCENT:
            last = (stage, percent)
            _log.info("model_progress", stage=stage, percent=percent)

    return tell


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
