"""What can be said to `copydesk chaos`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from copydesk.cli.options import checked_url

if TYPE_CHECKING:
    from copydesk.chaos.kinds import Kind

ALL, NONE = "all", "none"


def chaos(
    minutes: Annotated[float, typer.Option(min=0.1, max=10_080, metavar="M", help="How long.")] = 30.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the faults, the arrivals and the sentences.")] = 1,
    rate: Annotated[
        float, typer.Option(min=0.1, max=100_000, metavar="RATE", help="Requests a second, at random moments.")
    ] = 2.0,
    url: Annotated[
        str | None,
        typer.Option(
            callback=checked_url,
            help="A fleet that runs, in place of one that is started for this; COPYDESK_URL does not count here.",
        ),
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The fleet that was started with this --state-dir, in place of --url."),
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Which: kinds or groups (pod, engine, worker, link, nats, eds, autoscaler, redis), all or none. "
            "(default: all; with --url none)",
        ),
    ] = None,
    pods: Annotated[int, typer.Option(min=2, max=64, metavar="N", help="Of the fleet that is started.")] = 2,
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="That its pods run. (default: the English model, prepared once)"),
    ] = None,
    deadline_ms: Annotated[
        float, typer.Option(min=1, max=600_000, metavar="MS", help="In which an answer counts.")
    ] = 5000.0,
    slo_ms: Annotated[
        float, typer.Option("--slo-ms", min=0.001, metavar="MS", help="Marked in the pictures.")
    ] = 1000.0,
    availability: Annotated[
        float, typer.Option(min=0, max=100, metavar="P", help="Percent of the requests to be answered in time.")
    ] = 99.99,
    texts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Sentences, one a line. (default: those that come with it)"),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report to look at.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Break a fleet on purpose, under load, and see what its users notice.

    Starts a fleet of its own, with an autoscaler, a proxy before each pod and,
    where redis-server is installed, a Redis. Sentences arrive at random
    moments, whatever the fleet does; faults that are drawn from the seed strike
    pods, one at a time, and beside them NATS, discovery, autoscaler and Redis.
    What each process holds is counted meanwhile. Ctrl-C ends it with a report
    of what was.

    With --url the load goes to a fleet that runs, and nothing is broken, unless
    --faults says what; that takes a fleet that copydesk up started on this
    machine.

    Exit code 1 means that a bar was missed, 2 that it cannot be done so, 130
    that it was interrupted.

    [bold]Examples[/]

      copydesk chaos --minutes 5 --html chaos.html

      copydesk chaos --seed 7 --rate 20 --faults pod,link

      copydesk chaos --url http://gateway:8080 --minutes 60 --json

      copydesk chaos --url http://127.0.0.1:8080 --faults pod-kill,nats
    """
    from copydesk.cli.commands import chaos as command

    request = command.ChaosRequest(
        seconds=60.0 * minutes,
        seed=seed,
        rate=rate,
        url=url,
        state_dir=state_dir,
        kinds=_kinds(faults, started_here=url is None and state_dir is None),
        pods=pods,
        model=model,
        deadline_ms=deadline_ms,
        slo_ms=slo_ms,
        availability=availability / 100.0,
        texts=texts,
        page=html,
        as_json=json,
    )
    raise typer.Exit(command.chaos(request))


def _kinds(text: str | None, *, started_here: bool) -> tuple[Kind, ...]:
    from copydesk.chaos.kinds import Kind

    words = [word.strip() for word in (text or (ALL if started_here else NONE)).split(",") if word.strip()]
    if words == [NONE]:
        return ()
    if words == [ALL]:
        return tuple(Kind)
    for word in words:
        if not any(_means(word, kind) for kind in Kind):
            raise typer.BadParameter(
                f"{word!r}; expected {ALL}, {NONE}, or some of {', '.join(Kind)}", param_hint="--faults"
            )
    return tuple(kind for kind in Kind if any(_means(word, kind) for word in words))


def _means(word: str, kind: Kind) -> bool:
    return word in (kind.value, kind.value.partition("-")[0])
