"""The command where its output cannot be written."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from copydesk.cli import main


def test_a_full_disk_under_the_output_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(main, "app", full)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as caught:
            main.run()
    assert caught.value.code == "error: the output cannot be written: No space left on device"


def test_other_errors_of_the_system_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "a file")

    monkeypatch.setattr(main, "app", broken)
    with pytest.raises(OSError, match="a file"):
        main.run()
