"""Models and their endpoints as tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from copydesk.cli.discovery.picture import EndpointRow, ModelRows
from copydesk.cli.fleet.report import seconds

_COLOURS = {"ready": "green", "warming": "yellow", "draining": "yellow"}


def tables(models: Sequence[ModelRows], *, note: str = "") -> RenderableType:
    """Show each model with its endpoints; `note` stands above them all."""
    parts: list[RenderableType] = [Text(note, style="yellow")] if note else []
    for rows in models:
        if parts:
            parts.append(Text())
        parts += [_headline(rows), *([_table(rows.endpoints)] if rows.endpoints else [])]
    return Group(*parts)


def _headline(rows: ModelRows) -> Text:
    counts = ", ".join(f"{count} {state}" for state, count in rows.counts.items() if count) or "no endpoint"
    line = Text.assemble((rows.model, "bold"), f"  {counts}")
    held = sum(row.held is not None for row in rows.endpoints)
    if held:
        line.append(f", {held} of them held back", "red")
    epoch = f"epoch {datetime.fromtimestamp(rows.epoch / 1000, UTC):%Y-%m-%d %H:%M:%S}Z, " if rows.epoch else ""
    line.append(f"  {epoch}generation {rows.generation}, said {seconds(rows.sent_age_s)} ago", "dim")
    if rows.stale:
        line.append("  stale: its source cannot be heard", "yellow")
    return line


def _table(rows: Sequence[EndpointRow]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="dim")
    shown = {
        "endpoint": True,
        "address": True,
        "state": True,
        "held back for": any(row.held is not None for row in rows),
        "zone": any(row.zone for row in rows),
        "node": any(row.node for row in rows),
        "age": any(row.age_s is not None for row in rows),
        "speaks": any(row.protocol != "rpc" for row in rows),
        "capacity": any(row.capacity for row in rows),
    }
    for column, needed in shown.items():
        if needed:
            justify = "right" if column in ("age", "capacity") else "left"
            table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        cells: dict[str, str | Text] = {
            "endpoint": row.id,
            "address": f"[{row.host}]:{row.port}" if ":" in row.host else f"{row.host}:{row.port}",
            "state": Text(row.state, _COLOURS.get(row.state, "")),
            "held back for": _held(row),
            "zone": row.zone or "-",
            "node": row.node or "-",
            "age": "-" if row.age_s is None else seconds(row.age_s),
            "speaks": row.protocol,
            "capacity": str(row.capacity or "-"),
        }
        # Names come from outside: none of them is markup.
        texts = (Text(cell) if isinstance(cell, str) else cell for cell in cells.values())
        table.add_row(*(text for text, needed in zip(texts, shown.values(), strict=True) if needed))
    return table


def _held(row: EndpointRow) -> Text:
    # A column of its own, and short: where a terminal is narrow, names and addresses must not be cut for it.
    if row.held is None:
        return Text("-")
    return Text(f"{seconds(row.held.seconds)} of {seconds(row.held.limit_seconds)}", "red")
