"""Options that several sub-commands have."""

from __future__ import annotations

from typing import Annotated

import typer


def checked_url(value: str | None) -> str | None:
    """Return an option's value if it can be the URL of a fleet, or is none; raises `typer.BadParameter`."""
    from urllib.parse import urlsplit

    if value is None:
        return None
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise typer.BadParameter(f"{value!r} is no URL of a fleet; expected something like http://127.0.0.1:8080")
    return value


Url = Annotated[
    str | None,
    typer.Option(
        envvar="COPYDESK_URL",
        callback=checked_url,
        help="The fleet to talk to. (default: the one that runs here)",
    ),
]
