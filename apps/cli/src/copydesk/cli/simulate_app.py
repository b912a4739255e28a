"""What can be said to `copydesk simulate`; as in `main`, only typer is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

simulate_app = typer.Typer(help="Simulations: a whole fleet in virtual time.", no_args_is_help=True)


@simulate_app.callback()
def simulate_root() -> None:
    """Simulations: a whole fleet in virtual time."""


@simulate_app.command()
def balancing(
    scenario: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="slow, failing, joining or lost-zone; repeatable. (default: all)"),
    ] = None,
    pods: Annotated[int | None, typer.Option(min=2, max=1000, metavar="N", help="(default: 170, or 200)")] = None,
    gateways: Annotated[int | None, typer.Option(min=1, max=256, metavar="N", help="(default: 32)")] = None,
    load: Annotated[
        float | None,
        typer.Option(min=0.01, max=1.5, metavar="PART", help="Of what the pods can do. (default: 0.8)"),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.5, max=600, metavar="S", help="Simulated time. (default: 6, or 4)")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of all that is random.")] = 1,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the first scenario as SVG as well.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Balance a simulated fleet by the gateway's own code, and by other rules.

    The others: round robin, random, least loaded and two choices by reports, two choices by
    own requests, and rules that know the true load of every pod. Takes less than a minute.

    [bold]Examples[/]

      copydesk simulate balancing

      copydesk simulate balancing --scenario slow --pods 200 --picture balancing.svg

      copydesk simulate balancing --json | jq '.parts[0].p99_to_perfect'
    """
    from copydesk.cli.commands.simulate import SimulateRequest, simulate_balancing

    request = SimulateRequest(tuple(scenario or ()), pods, gateways, load, seconds, seed, picture, as_json=json)
    raise typer.Exit(simulate_balancing(request))


@simulate_app.command()
def fleet(
    trace: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="diurnal, burst, step, flash, noise; or a CSV file.")
    ] = "diurnal",
    peak: Annotated[
        float | None,
        typer.Option(min=0.1, max=100_000_000, metavar="RATE", help="Scale to so many requests/s at most."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=28, metavar="N", help="Of the diurnal trace.")] = 1,
    max_gap: Annotated[
        float, typer.Option(min=1, metavar="S", help="Longer without a request is a hole in a file.")
    ] = 900.0,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of copydesk capacity. (default: an assumed pod of 1,200 requests/s)"),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A model profile: its certificate and its cold start."),
    ] = None,
    model: Annotated[str, typer.Option(metavar="NAME", help="The certificate must be for it.")] = "",
    hardware: Annotated[str, typer.Option(metavar="NAME", help="The certificate must be for it.")] = "",
    min_pods: Annotated[int, typer.Option(metavar="N", help="The smallest fleet.")] = 1,
    max_pods: Annotated[int, typer.Option(metavar="N", help="The largest fleet.")] = 300,
    cold_start: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=3600,
            metavar="S",
            help="In which half of the new pods are ready. (default: 35 for P90 60)",
        ),
    ] = None,
    cold_start_p90: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=3600,
            metavar="S",
            help="In which nine of ten are. (default: the profile's, or 60)",
        ),
    ] = None,
    fail_starts: Annotated[
        float, typer.Option(min=0, max=0.9, metavar="PART", help="Of new pods that never are.")
    ] = 0.01,
    pod_life: Annotated[
        float, typer.Option(min=0.1, metavar="HOURS", help="After which a pod fails, on average.")
    ] = 200.0,
    price: Annotated[float, typer.Option(min=0, metavar="DOLLARS", help="Of a pod hour.")] = 4.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of all that is random.")] = 1,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw demand, capacity and latency as SVG.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Scale a simulated fleet by the autoscaler's own code, and by other rules.

    The others: Kubernetes' HPA, Knative's KPA and Ray Serve, each well tuned, and an optimum
    that knows what will come. All get the same requests and pods. A day takes half a minute.

    Files: the Azure LLM inference traces, BurstGPT, or CSV with the columns time and rate.

    Exit code 2 means that this cannot be simulated: a trace with a hole, limits that cannot
    be kept, a certificate for something else.

    [bold]Examples[/]

      copydesk simulate fleet

      copydesk simulate fleet --trace burst --picture burst.svg

      copydesk simulate fleet --trace BurstGPT_1.csv --peak 50000 --certificate capacity.json

      copydesk simulate fleet --json | jq '.policies | map_values(.slo_violation_seconds)'
    """
    from copydesk.cli.commands.fleet_simulation import FleetRequest, simulate_fleet

    request = FleetRequest(
        trace=trace,
        peak=peak,
        days=days,
        longest_gap_s=max_gap,
        certificate=certificate,
        profile=profile,
        model=model,
        hardware=hardware,
        min_pods=min_pods,
        max_pods=max_pods,
        cold_start_s=cold_start,
        cold_start_p90_s=cold_start_p90,
        fail_starts=fail_starts,
        mean_life_h=pod_life,
        price=price,
        seed=seed,
        picture=picture,
        as_json=json,
    )
    raise typer.Exit(simulate_fleet(request))
