"""Where decisions are found: in a log that was named, in that of the fleet that runs here, or over NATS."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs

from copydesk.autoscaler.log_entry import Entry, heard
from copydesk.cli.discovery.nats_origin import begin, find_nats, let_in
from copydesk.cli.discovery.origin import OriginError
from copydesk.cli.fleet.state import running_fleets
from copydesk.common.bus import Bus
from copydesk.common.messages import ScaleDecision, scale_subject, shadow_subject

LOG_VARIABLE = "COPYDESK_AUTOSCALER_LOG_FILE"
STATE_VARIABLE = "COPYDESK_AUTOSCALER_STATE_DIR"
URL_VARIABLE = "COPYDESK_AUTOSCALER_NATS_URL"
TOKEN_VARIABLE = "COPYDESK_AUTOSCALER_NATS_TOKEN"  # noqa: S105 - the name of a variable
FILE = "decisions.jsonl"
QUIET_S = 2.5
"""Every model is decided upon every two seconds."""


def candidates(environ: Mapping[str, str]) -> list[Path]:
    """Return where a decision log may be, the likeliest first."""
    named = [Path(environ[LOG_VARIABLE])] if environ.get(LOG_VARIABLE) else []
    folders = [Path(environ[STATE_VARIABLE])] if environ.get(STATE_VARIABLE) else []
    fleets = [Path(fleet.state_dir) / "autoscaler" for fleet in running_fleets()]
    usual = platformdirs.user_state_path("copydesk") / "autoscaler"
    return [*named, *(folder / FILE for folder in (*folders, *fleets, usual))]


def find_log(environ: Mapping[str, str]) -> Path | None:
    """Return the first log that there is, None if there is none."""
    return next((path for path in candidates(environ) if path.is_file()), None)


async def listen(url: str | None, models: tuple[str, ...], on_entry: Callable[[Entry], None]) -> Bus:
    """Have `on_entry` called with each decision that is published; raise `OriginError` without a server."""
    server, token = find_nats(url or os.environ.get(URL_VARIABLE), os.environ)
    token = os.environ.get(TOKEN_VARIABLE) or token
    bus = await begin(server, token, "explain")

    def on_decision(decision: ScaleDecision) -> None:
        on_entry(heard(decision))

    try:
        for model in models or ("*",):
            await bus.subscribe(scale_subject(model), ScaleDecision, on_decision)
            await bus.subscribe(shadow_subject(model), ScaleDecision, on_decision)
        await let_in(bus, server, token, "copydesk up --autoscale 1:4")
    except OriginError:
        await bus.close()
        raise
    return bus


async def overhear(url: str | None, models: tuple[str, ...], seconds: float) -> list[Entry]:
    """Return the decisions that are published within `seconds`."""
    found: list[Entry] = []
    bus = await listen(url, models, found.append)
    try:
        await asyncio.sleep(seconds)
    finally:
        await bus.close()
    return found
