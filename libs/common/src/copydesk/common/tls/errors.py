"""What is wrong with a file of TLS."""

from __future__ import annotations

from pathlib import Path

from copydesk.common.errors import CopydeskError


class TlsError(CopydeskError):
    """A file that cannot be used: `variable` is the setting that names it, `problem` what is wrong."""

    def __init__(self, variable: str, path: Path, problem: str) -> None:
        self.variable = variable
        self.path = path
        self.problem = problem
        super().__init__(f"{variable}: {path}: {problem}")
