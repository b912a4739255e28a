"""`copydesk certificates`: an authority of the fleet's own, and a certificate for each part."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.table import Table

from copydesk.cli import terminal
from copydesk.cli.certificates.authority import Authority, Issued
from copydesk.cli.certificates.component import Component
from copydesk.cli.certificates.folder import AUTHORITY, CA_CERTIFICATE, CertificatesError, Folder

REFUSED = 2


@dataclass(frozen=True, slots=True)
class CertificatesRequest:
    """What was asked for on the command line."""

    folder: Path
    days: int
    renew: bool
    as_json: bool


class Made(msgspec.Struct, frozen=True):
    """A certificate: whose it is, where, for which names, and when it ends (ISO 8601, UTC)."""

    component: str
    folder: str
    names: tuple[str, ...]
    ends: str


class Certificates(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    authority: str
    authority_ends: str
    certificates: tuple[Made, ...]


def certificates(request: CertificatesRequest, now: datetime | None = None) -> int:
    """Make or renew them, and show when each ends; returns the exit code."""
    folder, now = Folder(request.folder), now or datetime.now(UTC)
    try:
        authority, issued = (folder.renew if request.renew else folder.create)(now, request.days)
    except CertificatesError as error:
        terminal.say_error(str(error), error.hint)
        return REFUSED
    found = _summary(request.folder, authority, issued)
    if request.as_json:
        terminal.write_line(msgspec.json.encode(found))
    else:
        terminal.stdout().print(_table(found))
        where = request.folder / AUTHORITY
        advice = f"Keep {where} where no service runs: whoever has its key can be any of them."
        terminal.stderr().print(advice, soft_wrap=True)
    return 0


def _summary(folder: Path, authority: Authority, issued: dict[Component, Issued]) -> Certificates:
    return Certificates(
        str(folder / AUTHORITY / CA_CERTIFICATE),
        authority.ends.isoformat(),
        tuple(
            Made(component.folder, str(folder / component.folder), component.names, each.ends.isoformat())
            for component, each in issued.items()
        ),
    )


def _table(found: Certificates) -> Table:
    table = Table("component", "folder", "ends", box=None, pad_edge=False)
    table.add_row("(authority)", str(Path(found.authority).parent), _day(found.authority_ends))
    for each in found.certificates:
        table.add_row(each.component, each.folder, _day(each.ends))
    return table


def _day(moment: str) -> str:
    return datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M UTC")
