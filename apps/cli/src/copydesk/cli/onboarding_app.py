"""What can be said to `copydesk model search` and `onboard`; as in `main`, only typer is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(metavar="DIR", help="A model's directory, or: default.")]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Sentences to judge by, as for evaluate. (default: those that come with it)"
    ),
]
References = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE...", help="For plain text: right corrections, a line each; one or more files."),
]
More = Annotated[
    list[Path] | None, typer.Argument(metavar="[FILE]...", help="More --references.", show_default=False)
]
Clean = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Right sentences, one a line, besides those in the data.")
]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="Judge by the first N sentences only.")]
Margins = Annotated[
    list[str] | None,
    typer.Option(
        "--margin",
        metavar="NAME=X",
        help="What may be lost, as for evaluate. (default: gleu=1, over_correction=2)",
    ),
]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="cpu or cuda. (default: COPYDESK_INFERENCE_DEVICE, else cpu)")
]
Emulate = Annotated[
    bool, typer.Option("--emulate", help="On a processor, judge FP8 plans as well: by quality, not by speed.")
]


def search(
    directory: Model,
    more: More = None,
    data: Data = None,
    references: References = None,
    clean: Clean = None,
    limit: Limit = None,
    plans: Annotated[
        str,
        typer.Option(metavar="A,B", help="Try these: original, original-int8, int8, fp8, fp8-keep-attention, ..."),
    ] = "",
    per_tensor: Annotated[
        bool, typer.Option("--per-tensor", help="Try one scale for each tensor, besides one for each channel.")
    ] = False,
    emulate: Emulate = False,
    margin: Margins = None,
    rounds: Annotated[int, typer.Option(min=2, max=100, metavar="N", help="Of the measurement of speed.")] = 5,
    sentences: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="A round.")] = 64,
    device: Device = "",
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where it is kept what was tried. (default: in the cache)")
    ] = None,
    anew: Annotated[bool, typer.Option("--anew", help="Take nothing from a search before.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Find the precision in which a model is fastest and loses nothing.

    Each plan is made, corrects the data, and is held against the original: what loses
    more than its margin is out, and so is what the sentences cannot tell. Those that pass
    are timed on this machine by the engine that would serve them, in turns. The fastest
    is taken; of those that are about as fast, the one with the better quality.

    On a processor FP8 is only emulated, and is left out unless asked for. A search that was
    interrupted or killed goes on where it was; other weights or other data begin anew.

    Exit code 1 means that no plan passes; 2 that it cannot be searched so.

    [bold]Examples[/]

      copydesk model search default

      copydesk model search ~/models/candidate --data dev.m2 --json | jq .choice

      copydesk model search ~/models/candidate --plans original,int8,fp8-keep-attention --emulate
    """
    from copydesk.cli.commands import model_search as command

    request = command.SearchRequest(
        directory=directory,
        data=data,
        references=_variants(data, references, more),
        clean=clean,
        limit=limit,
        plans=_names(plans),
        per_tensor=per_tensor,
        emulate=emulate,
        margins=_margins(margin),
        rounds=rounds,
        sentences=sentences,
        device=device,
        state=state,
        anew=anew,
        as_json=json,
    )
    raise typer.Exit(command.run(request))


def onboard(
    directory: Model,
    more: More = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the results go. (default: NAME-onboarded, here)")
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="What the fleet calls it. (default: the directory's name)")
    ] = "",
    data: Data = None,
    references: References = None,
    clean: Clean = None,
    limit: Limit = None,
    plan: Annotated[str, typer.Option(metavar="NAME", help="Take this precision plan, and search no other.")] = "",
    plans: Annotated[str, typer.Option(metavar="A,B", help="Search among these, as for search.")] = "",
    emulate: Emulate = False,
    margin: Margins = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure shortly; the certificate is rough then.")
    ] = False,
    capacity: Annotated[
        bool, typer.Option("--capacity/--no-capacity", help="Whether to find out what a pod holds.")
    ] = True,
    slo_ms: Annotated[
        float,
        typer.Option(
            "--slo-ms", min=1.0, max=3_600_000.0, metavar="MS", help="The latency that requests shall not exceed."
        ),
    ] = 1000.0,
    max_rate: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=1_000_000.0, metavar="RATE", help="Go no further in the search for what a pod holds."
        ),
    ] = None,
    device: Device = "",
    restart_from: Annotated[
        str,
        typer.Option(
            metavar="STAGE",
            help="Do this and all after it again: check, search, quantise, gate, tune, capacity, cold-start.",
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Take a checkpoint, and end with a fleet configuration, or with the reason why not.

    Checks it, finds the precision in which it is fastest and loses nothing, quantises it,
    holds it against the original, tunes the engine on this machine, measures what a pod
    holds and how long it takes to start. The results are a model profile (YAML), a report
    to read and print (HTML), a capacity certificate, and the model.

    Each stage is kept with the digests of what it depends on: a run that was interrupted
    or killed goes on at the first stage that is not done, and what has changed since is
    done again.

    Exit code 1 means that the model is not taken: the stage, the reason and what to change
    are on standard error. 2 means that there is nothing to begin with.

    [bold]Examples[/]

      copydesk model onboard default

      copydesk model onboard ~/models/candidate --data dev.m2 --quick

      copydesk model onboard ~/models/candidate --data dev.src --references dev.ref0 dev.ref1

      copydesk model onboard ~/models/candidate --plan int8 --slo-ms 500

      copydesk up --profile candidate-onboarded/profile.yaml
    """
    from copydesk.cli.commands import model_onboard as command
    from copydesk.cli.onboarding.stages import STAGES

    if restart_from and restart_from not in STAGES:
        raise typer.BadParameter(
            f"{restart_from!r}; expected one of {', '.join(STAGES)}", param_hint="--restart-from"
        )
    if plan and plans:
        raise typer.BadParameter("one plan is taken as it is, several are searched", param_hint="--plan")
    request = command.OnboardRequest(
        directory=directory,
        out=out,
        name=name,
        data=data,
        references=_variants(data, references, more),
        clean=clean,
        limit=limit,
        plan=plan,
        plans=_names(plans),
        emulate=emulate,
        margins=_margins(margin),
        quick=quick,
        capacity=capacity,
        slo_ms=slo_ms,
        max_rate=max_rate,
        device=device,
        restart_from=restart_from,
        as_json=json,
    )
    raise typer.Exit(command.run(request))


def _variants(data: Path | None, references: list[Path] | None, more: list[Path] | None) -> tuple[Path, ...]:
    if (more and not references) or (references and data is None):
        raise typer.BadParameter("files of references go with --data FILE --references FILE...")
    return (*(references or []), *(more or []))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _margins(texts: list[str] | None) -> dict[str, float]:
    from copydesk.cli.commands.model_evaluate import MarginSyntaxError, margins_of

    try:
        return margins_of(texts or [])
    except MarginSyntaxError as error:
        raise typer.BadParameter(str(error), param_hint="--margin") from error


def add_to(model_app: typer.Typer) -> None:
    """Add both to the command."""
    model_app.command()(search)
    model_app.command()(onboard)
