"""Where this machine keeps what is made once and can be made again: models, packed weights, compiled code."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

CACHE_VARIABLE = "COPYDESK_CACHE_DIR"


def cache_folder() -> Path:
    """`COPYDESK_CACHE_DIR` if that is set, else the user's cache folder."""
    override = os.environ.get(CACHE_VARIABLE, "")
    return Path(override).expanduser() if override else user_cache_path("copydesk")
