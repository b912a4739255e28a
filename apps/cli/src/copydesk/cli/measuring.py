"""What can be said to `copydesk capacity` and `copydesk bench load`."""

from __future__ import annotations

import os
from enum import StrEnum
from math import ceil
from pathlib import Path
from typing import Annotated

import typer

from copydesk.cli.options import Url


class Shape(StrEnum):
    """How a load goes over time."""

    CONSTANT = "constant"
    POISSON = "poisson"
    RAMP = "ramp"
    BURST = "burst"
    TRACE = "trace"


SLO = Annotated[
    float, typer.Option("--slo-ms", min=0.001, metavar="MS", help="The latency that requests shall not exceed.")
]
Texts = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Sentences, one a line. (default: those that come with it)")
]
Served = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="The model to ask for. (default: the one served)")
]


def capacity(
    url: Url = None,
    model: Served = None,
    slo_ms: SLO = 1000.0,
    miss_percent: Annotated[
        float, typer.Option(min=0.01, max=50, metavar="P", help="Of the requests, that may exceed it.")
    ] = 1.0,
    precision_percent: Annotated[
        float, typer.Option(min=0.5, max=100, metavar="P", help="How close to search.")
    ] = 3.0,
    seconds: Annotated[float, typer.Option(min=0.2, max=3600, metavar="S", help="A trial's length.")] = 20.0,
    arrivals: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            metavar="N",
            help="Requests of a trial, at the least. (default: so many that five may miss, which is 500)",
        ),
    ] = None,
    warm_seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=600,
            metavar="S",
            help="Before each trial, at its rate. (default: eight times the objective, 3 at the least)",
        ),
    ] = None,
    start: Annotated[
        float | None,
        typer.Option(min=0.01, metavar="RATE", help="The first rate. (default: a quarter of what batches make)"),
    ] = None,
    max_rate: Annotated[
        float, typer.Option(min=0.01, metavar="RATE", help="Go no further; requests a second.")
    ] = 1_000_000.0,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=256, metavar="N", help="That may send, if one is not enough. (default: cores)"),
    ] = None,
    texts: Texts = None,
    hardware: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the pods run on. (default: this machine's, if they are here)"),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of the pods that they do not tell; repeatable."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where trials are kept. (default: a file a server, see --resume)"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the trials that are kept.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the certificate there as well.")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write R*, C* and target concurrency of a pod into this model profile, which the fleet must run.",
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw latency against concurrency as SVG.")
    ] = None,
    show: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show a certificate, and measure nothing.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the arrivals.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="The certificate as JSON.")] = False,
) -> None:
    """Find the highest rate that a fleet holds, and certify it.

    Requests arrive at random moments that are fixed beforehand, and latency
    counts from these, whatever the fleet does. The rate doubles until it is too
    much; then the range is halved until it is 3 % wide; then the answer is tried
    once more, for longer. Takes about ten minutes, and longer for a fleet that
    holds less than 25 requests a second; --seconds, --arrivals and
    --precision-percent shorten it. What autoscaler and simulator read is the
    certificate (--output, or --json).

    Exit code 1 means that no rate was found, or that the fleet changed or went
    away meanwhile; 2 that it cannot be measured so.

    [bold]Examples[/]

      copydesk capacity --output capacity.json --picture capacity.svg

      copydesk capacity --profile gec-en-onboarded/profile.yaml

      copydesk capacity --url http://gateway:8080 --slo-ms 500 --hardware "NVIDIA H100"

      copydesk capacity --resume

      copydesk capacity --json | jq '.rate, .concurrency'
    """
    from copydesk.cli.commands import capacity as command
    from copydesk.loadtest.ground import Timing
    from copydesk.loadtest.verdict import Rules

    if show is not None:
        raise typer.Exit(command.show_saved(show, picture, profile, as_json=json))
    request = command.CapacityRequest(
        url=url,
        model=model,
        rules=Rules(slo_ms=slo_ms, slow_share=miss_percent / 100.0),
        timing=Timing(
            seconds=seconds,
            arrivals=arrivals or max(100, ceil(500.0 / miss_percent)),
            warm_s=warm_seconds or min(max(3.0, 8.0 * slo_ms / 1000.0), 60.0),
        ),
        precision=precision_percent / 100.0,
        start=start,
        max_rate=max_rate,
        processes=processes or len(os.sched_getaffinity(0)),
        texts=texts,
        hardware=hardware,
        config=_settings(config or []),
        state=state,
        resume=resume,
        output=output,
        picture=picture,
        seed=seed,
        as_json=json,
        profile=profile,
    )
    raise typer.Exit(command.capacity(request))


def _settings(texts: list[str]) -> dict[str, str]:
    parted = [text.partition("=") for text in texts]
    for name, sign, value in parted:
        if not name or not sign:
            raise typer.BadParameter(f"{name + value!r}; expected something like dtype=fp8", param_hint="--config")
    return {name: value for name, _, value in parted}


def load(
    url: Url = None,
    model: Served = None,
    shape: Annotated[
        Shape, typer.Option(metavar="NAME", help="constant, poisson, ramp, burst or trace.")
    ] = Shape.POISSON,
    rate: Annotated[
        float, typer.Option(min=0, max=1_000_000, metavar="RATE", help="Requests a second; at first, of a ramp.")
    ] = 10.0,
    to: Annotated[
        float | None,
        typer.Option(min=0, max=1_000_000, metavar="RATE", help="The last rate of a ramp; that of a burst."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=86_400, metavar="S", help="How long.")] = 30.0,
    burst_at: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="When a burst begins. (default: after a third)")
    ] = None,
    burst_seconds: Annotated[
        float | None, typer.Option(min=0, metavar="S", help="How long it is. (default: a sixth)")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Times of arrivals: CSV, or JSON lines (*.jsonl).")
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.001, max=10_000, metavar="N", help="Replay a trace so many times as fast.")
    ] = 1.0,
    slo_ms: SLO = 1000.0,
    texts: Texts = None,
    processes: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="That send.")] = 1,
    grace: Annotated[
        float, typer.Option(min=0, max=600, metavar="S", help="To wait for the last answers.")
    ] = 30.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the arrivals.")] = 1,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report to look at.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Send a load to a fleet, and report what it did with it.

    When requests are due is fixed beforehand; latency counts from then, and
    nothing limits how many are in flight. Goodput counts the answers within the
    objective.

    A trace is CSV, a time in the first column or in one called time, timestamp
    or arrived_at; or JSON lines with one of these keys. Seconds, or dates as in
    ISO 8601.

    Exit code 2 means that the load cannot be sent: no fleet, a wrong key, a
    wrong trace.

    [bold]Examples[/]

      copydesk bench load --rate 20 --seconds 60 --html load.html

      copydesk bench load --shape ramp --rate 5 --to 80

      copydesk bench load --shape burst --rate 20 --to 200 --seconds 60 --burst-seconds 10

      copydesk bench load --shape trace --trace arrivals.csv --speed 10 --json | jq .goodput
    """
    from copydesk.cli.commands import load as command

    request = command.LoadRequest(
        url=url,
        model=model,
        shape=shape.value,
        rate=rate,
        peak=to,
        seconds=seconds,
        burst_at=burst_at,
        burst_seconds=burst_seconds,
        trace=trace,
        speed=speed,
        slo_ms=slo_ms,
        texts=texts,
        processes=processes,
        grace=grace,
        seed=seed,
        page=html,
        as_json=json,
    )
    raise typer.Exit(command.bench_load(request))


def add_to(app: typer.Typer, bench_app: typer.Typer) -> None:
    """Add both to the command."""
    app.command()(capacity)
    bench_app.command()(load)
