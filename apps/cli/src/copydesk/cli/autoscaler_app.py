"""What can be said to `copydesk autoscaler`; as in `main`, only typer is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

autoscaler_app = typer.Typer(help="The autoscaler: what it decided, and why.", no_args_is_help=True)

LogFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A decision log. (default: of the fleet that runs here, else the usual one)"
    ),
]
OnlyModel = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Only this model; repeatable. (default: all)")
]
From = Annotated[
    str | None, typer.Option("--from", metavar="WHEN", help="As 30m (ago), 14:30 or 2026-11-30T14:30.")
]
To = Annotated[str | None, typer.Option("--to", metavar="WHEN", help="As --from. (default: the end)")]


@autoscaler_app.callback()
def autoscaler_root() -> None:
    """The autoscaler: what it decided, and why."""


@autoscaler_app.command()
def explain(
    model: OnlyModel = None,
    last: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="How many rows.")] = 20,
    file: LogFile = None,
    nats_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Listen to what is published, instead of reading a log.")
    ] = None,
    changes: Annotated[bool, typer.Option("--changes", help="Only decisions that changed the size.")] = False,
    every: Annotated[
        bool, typer.Option("--every", help="A row for each decision, also where nothing changed.")
    ] = False,
    shadow: Annotated[bool, typer.Option("--shadow", help="Those of candidates as well.")] = False,
    wait: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="S", help="Over NATS: how long to listen.")
    ] = 5.0,
    json: Annotated[
        bool, typer.Option("--json", help="The decisions themselves, one JSON object a line.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with what comes, until Ctrl-C.")] = False,
) -> None:
    """Show the last decisions: how many pods, by which rule, why, and what then happened.

    Decisions in a row that kept the size by the same rule are one line. Without a log
    on this machine it listens to the local fleet's NATS.

    Exit code 1 means that there are no decisions, 2 that none can be had.

    [bold]Examples[/]

      copydesk autoscaler explain

      copydesk autoscaler explain --changes --last 50

      copydesk autoscaler explain --model gec-en --watch

      copydesk autoscaler explain --json --last 1000 | jq -c '[.time, .size, .replicas, .rule]'
    """
    try:
        from copydesk.cli.commands.autoscaler_explain import ExplainRequest
        from copydesk.cli.commands.autoscaler_explain import explain as run_explain
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error

    request = ExplainRequest(
        tuple(model or ()),
        last,
        file,
        nats_url,
        wait,
        changes=changes,
        every=every or json,
        shadow=shadow,
        as_json=json,
        watch=watch,
    )
    raise typer.Exit(run_explain(request))


@autoscaler_app.command()
def compare(
    model: OnlyModel = None,
    file: LogFile = None,
    start: From = None,
    end: To = None,
    json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Show where a candidate and the live configuration differed, and what then happened.

    "Missed" is what the live fleet's users saw: P99 above the objective, or requests
    refused. "Short" is computed: the candidate's pods would have had more work than a
    pod is certified for.

    Exit code 1 means that no candidate has run beside a live configuration.

    [bold]Examples[/]

      copydesk autoscaler compare

      copydesk autoscaler compare --from 24h --json | jq '.comparisons[].candidate_pod_hours'

      copydesk autoscaler compare --file decisions.jsonl --from 09:00 --to 10:30
    """
    try:
        from copydesk.cli.commands.autoscaler_compare import CompareRequest
        from copydesk.cli.commands.autoscaler_compare import compare as run_compare
    except ModuleNotFoundError as error:
        raise _not_installed(error) from error

    raise typer.Exit(run_compare(CompareRequest(tuple(model or ()), file, start, end, as_json=json)))


def _not_installed(error: ModuleNotFoundError) -> typer.Exit:
    typer.echo(f"error: {error.name} is not installed; install copydesk-cli[fleet]", err=True)
    return typer.Exit(2)
