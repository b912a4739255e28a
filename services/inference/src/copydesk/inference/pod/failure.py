"""What cannot start, and how a child tells the supervisor so."""

from __future__ import annotations

from pathlib import Path

from copydesk.common.errors import CopydeskError
from copydesk.inference.settings import ENVIRONMENT_PREFIX


class CannotStartError(CopydeskError):
    """A pod or a part of it that would fail in the same way again; `setting` is what to change.

    A variable that is not one of the pod's settings is named in full, from `COPYDESK_` on.
    """

    def __init__(self, setting: str, reason: str) -> None:
        self.setting = setting
        self.reason = " ".join(reason.split())
        prefix = "" if setting.startswith("COPYDESK_") else ENVIRONMENT_PREFIX
        super().__init__(f"{prefix}{setting}: {self.reason}")


class FailureNote:
    """A file in which a child leaves the one line that says why it cannot start.

    A file rather than standard error, where the line could be lost among a library's warnings.
    """

    def __init__(self, runtime: Path, child: str) -> None:
        self._path = runtime / f"{child}.failure"

    def write(self, error: CannotStartError) -> None:
        """Leave the message."""
        self._path.write_text(f"{error}\n", encoding="utf-8")

    def read(self) -> str | None:
        """Return the message that was left, if any."""
        try:
            return self._path.read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            return None
