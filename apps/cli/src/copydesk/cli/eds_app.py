"""What can be said to `copydesk eds`; as in `main`, only typer is imported here."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

eds_app = typer.Typer(help="Endpoint discovery: who is in the fleet.", no_args_is_help=True)


class Origin(StrEnum):
    """Where endpoints are asked for."""

    NATS = "nats"
    KUBERNETES = "kubernetes"
    STATIC = "static"


@eds_app.callback()
def eds_root() -> None:
    """Endpoint discovery: who is in the fleet."""


@eds_app.command()
def inspect(
    source: Annotated[
        Origin, typer.Option(metavar="NAME", help="nats: what is published; kubernetes, static: what they state.")
    ] = Origin.NATS,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this model; repeatable. (default: all)")
    ] = None,
    nats_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="(default: COPYDESK_EDS_NATS_URL, else the fleet that runs here)"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of the static source. (default: COPYDESK_EDS_STATIC_FILE)")
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A discovery with METRICS_PORT: show what it holds back as well."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(min=0.1, max=600, metavar="S", help="How long to listen. (default: 2.5; a source: 10)"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object (with --watch: a line a change).")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show each change, until Ctrl-C.")] = False,
) -> None:
    """Show the endpoints of each model: address, state, zone, node and age.

    By default this is what gateways hear over NATS: a snapshot a model, repeated
    every 2 s. The one of the newest publisher (epoch) and change (generation) counts.
    With --source it is what Kubernetes or a file states, before anything is held
    back; COPYDESK_EDS_... set these up as they do for discovery.

    States: ready (gets work), warming (not ready yet), draining (ends what it has).
    Held back: lost together with most others; stays until a probe finds nobody.

    Exit code 1 means that nothing was heard, 2 that nothing can be: no NATS, or a
    wrong setting.

    [bold]Examples[/]

      copydesk eds inspect

      copydesk eds inspect --model gec-en --watch --service http://127.0.0.1:9400

      copydesk eds inspect --source static --file pods.yaml

      copydesk eds inspect --json | jq -r '.models[].endpoints[] | .id, .state'

      copydesk eds inspect --watch --json | jq -c '[.time, .model, .counts]'
    """
    from copydesk.cli.commands.eds import InspectRequest
    from copydesk.cli.commands.eds import inspect as run_inspect

    request = InspectRequest(
        source.value, tuple(model or ()), nats_url, file, service, wait, as_json=json, watch=watch
    )
    raise typer.Exit(run_inspect(request))
