"""What can be said to `copydesk model rollout`; as in `main`, only typer is imported here."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import typer


def rollout(
    candidate: Annotated[
        str,
        typer.Option(
            metavar="VERSION", help="The new version: a digest or its beginning, a directory, a profile."
        ),
    ],
    baseline: Annotated[
        str | None, typer.Option(metavar="VERSION", help="The old version. (default: the only other one)")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name that both serve under. (default: the only one)")
    ] = None,
    nats_url: Annotated[
        str | None, typer.Option(metavar="URL", help="NATS. (default: the fleet that runs here, else port 4222)")
    ] = None,
    stages: Annotated[
        str, typer.Option(metavar="PERCENT,...", help="Shares of the requests, one after the other.")
    ] = "1,5,25,50,100",
    agreement: Annotated[
        float, typer.Option(min=0, max=1, metavar="X", help="Share of sentences that must come back the same.")
    ] = 0.85,
    sentences: Annotated[
        int, typer.Option(min=1, metavar="N", help="So many are compared before clients get answers.")
    ] = 500,
    shadow: Annotated[
        float, typer.Option(min=0, max=100, metavar="PERCENT", help="Of the baseline's requests that are copied.")
    ] = 10.0,
    slo_ms: Annotated[
        float, typer.Option(min=1, metavar="MS", help="The latency that is promised; what is above is slow.")
    ] = 1000.0,
    slow_margin: Annotated[
        float,
        typer.Option(min=0, max=100, metavar="PERCENT", help="So many more may be slow than of the baseline's."),
    ] = 5.0,
    failure_margin: Annotated[
        float, typer.Option(min=0, max=100, metavar="PERCENT", help="So many more may fail.")
    ] = 1.0,
    stage_s: Annotated[
        float, typer.Option("--stage-seconds", min=0, metavar="S", help="The least time for each share.")
    ] = 60.0,
    stage_requests: Annotated[
        int, typer.Option(min=1, metavar="N", help="The fewest requests that the candidate answers at each share.")
    ] = 100,
    patience: Annotated[
        float, typer.Option(min=0, metavar="S", help="Roll back if a stage takes longer; 0 waits for ever.")
    ] = 0.0,
    expires: Annotated[
        float,
        typer.Option(min=3, max=3600, metavar="S", help="Gateways go back by themselves after so long a silence."),
    ] = 15.0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Take over a rollout that is underway, or was left.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="On Ctrl-C leave it as it is, to be taken over, instead of rolling back."),
    ] = False,
    hold: Annotated[
        bool, typer.Option("--hold", help="After the end stay until the baseline's pods have gone.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a second.")] = False,
) -> None:
    """Replace a version of a model by another one in a running fleet, step by step.

    Both run side by side under one name. First a part of the live requests is copied to
    the candidate, once they have been answered, and the answers are compared; clients get
    none of them. If enough are the same, the candidate answers a share of the requests,
    which grows by stages. It goes back at once if answers differ too much, or if more
    requests fail or are slow than with the baseline, surely. Where reports are missing it
    holds. Ctrl-C rolls back, and gateways that hear nothing more do so by themselves.

    Exit code 0 means that the candidate answers everything, 1 that it was rolled back,
    2 that it cannot begin so, 130 that it was left with --keep.

    [bold]Examples[/]

      copydesk up --candidate ~/models/new

      copydesk model rollout --candidate ~/models/new

      copydesk model rollout --candidate 3f2a91 --stages 5,50,100 --agreement 0.9 --json

      copydesk model rollout --candidate new.yaml --resume
    """
    from copydesk.cli.commands.model_rollout import RolloutRequest
    from copydesk.cli.commands.model_rollout import rollout as run_rollout
    from copydesk.cli.rollout.conductor import Terms
    from copydesk.cli.rollout.controller import Wanted
    from copydesk.routing import Policy

    policy = Policy(
        sentences=sentences,
        agreement=agreement,
        shares=_shares(stages),
        seconds=stage_s,
        requests=stage_requests,
        failure_margin=failure_margin / 100,
        slow_margin=slow_margin / 100,
        patience=patience,
    )
    if shadow == 0:
        raise typer.BadParameter("without copies there is nothing to compare", param_hint="--shadow")
    wanted = Wanted(
        terms=Terms(policy, slo_ms, shadow / 100, expires),
        candidate=candidate,
        baseline=baseline,
        model=model,
        resume=resume,
        keep=keep,
        hold=hold,
    )
    raise typer.Exit(run_rollout(RolloutRequest(wanted, nats_url, as_json=json)))


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) / 100 for part in text.split(","))
    except ValueError:
        shares = ()
    growing = all(one < other for one, other in pairwise(shares))
    if not shares or not growing or not 0 < shares[0] <= shares[-1] <= 1:
        message = f"{text!r}; expected growing percentages like 1,5,25,50,100"
        raise typer.BadParameter(message, param_hint="--stages")
    return shares


def add_to(model_app: typer.Typer) -> None:
    """Add it to the command."""
    model_app.command()(rollout)
