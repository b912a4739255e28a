"""What can be said to `copydesk model evaluate`; as in `main`, only typer is imported here."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class DataFormat(StrEnum):
    """How a file holds sentences and references."""

    AUTO = "auto"
    PLAIN = "plain"
    TSV = "tsv"
    M2 = "m2"
    JSONL = "jsonl"


class EditsBy(StrEnum):
    """Who finds the edits that precision and recall count."""

    AUTO = "auto"
    OWN = "own"
    ERRANT = "errant"


def evaluate(
    candidate: Annotated[
        str, typer.Argument(metavar="CANDIDATE", help="A model's directory, a fleet's URL, or: default.")
    ],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="More --references.", show_default=False)
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="REFERENCE", help="The model to compare with, like CANDIDATE. (default: no verdict)"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Sentences to correct. (default: those that come with it)"),
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE...", help="For plain text: right corrections, a line each; one or more files."),
    ] = None,
    clean: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Right sentences, one a line, besides those in the data."),
    ] = None,
    format: Annotated[
        DataFormat, typer.Option(metavar="NAME", help="plain, tsv, m2, jsonl, or auto: by name and content.")
    ] = DataFormat.AUTO,
    tokenised: Annotated[
        bool | None,
        typer.Option("--tokenised/--plain", help="Penn Treebank tokens, or text. (default: what it looks like)"),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N sentences.")] = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=X",
            help="What may be lost: gleu, over_correction, f0.5, exact_match, agreement, latency; repeatable. "
            "(default: gleu=1, over_correction=2)",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="The candidate's arithmetic. (default: what is fastest here)")
    ] = "",
    against_dtype: Annotated[str, typer.Option(metavar="TYPE", help="That of the reference model.")] = "",
    threads: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="For each model. (default: as a pod)")
    ] = None,
    alone: Annotated[
        int, typer.Option(min=0, metavar="N", help="Sentences that are sent one at a time, for their latency.")
    ] = 40,
    edits: Annotated[
        EditsBy, typer.Option(metavar="NAME", help="Who finds edits: own, errant, or auto: errant if installed.")
    ] = EditsBy.AUTO,
    resamples: Annotated[
        int, typer.Option(min=100, max=100_000, metavar="N", help="Of the sentences, for intervals.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the resamples.")] = 1,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report with all sentences that changed.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Tell how well a model corrects, and whether it loses anything against another.

    Both correct the same sentences, in turns, as pods would; or ask fleets for it, by
    their URL. GLEU, precision and recall of edits, exact matches, corrections of what
    was right, agreement and latency, each with its 95 % interval. With --against comes
    a verdict: the candidate passes if it loses no more than its margins, surely.

    Data is a TSV file (sentence, corrections), M2 with all its annotators, JSON lines
    (source, references), or plain text with files of references.

    Exit code 0 means that it passed, or that nothing was compared; 1 that it failed;
    3 that the sentences are too few to tell, and how many would; 2 that it cannot be
    evaluated so.

    [bold]Examples[/]

      copydesk model evaluate ~/models/candidate --against default

      copydesk model evaluate default --dtype int8 --against default --against-dtype bfloat16

      copydesk model evaluate candidate/ --against default --data dev.src --references dev.ref0 dev.ref1

      copydesk model evaluate http://127.0.0.1:8080 --data test.m2 --json | jq .gleu

      copydesk model evaluate candidate/ --against default --margin gleu=0.5 --html report.html
    """
    from copydesk.cli.commands import model_evaluate as command
    from copydesk.evaluation import Format, Options, Source

    variants = (*(references or []), *(more or []))
    if variants and (data is None or not references):
        raise typer.BadParameter("files of references go with --data FILE --references FILE...")
    if data is None and (format is not DataFormat.AUTO or tokenised is not None):
        raise typer.BadParameter("--format, --tokenised and --plain are for --data FILE")
    try:
        margins = command.margins_of(margin or [])
    except command.MarginSyntaxError as error:
        raise typer.BadParameter(str(error), param_hint="--margin") from error
    source = Source(data, variants, clean, Format(format.value), tokenised) if data is not None else None
    request = command.EvaluateRequest(
        candidate=candidate,
        reference=against,
        source=source,
        clean=clean,
        limit=limit,
        dtype=dtype,
        reference_dtype=against_dtype,
        threads=threads,
        options=Options(margins, alone=alone, resamples=resamples, seed=seed, edits=edits.value),
        page=html,
        as_json=json,
    )
    raise typer.Exit(command.run(request))


def add_to(model_app: typer.Typer) -> None:
    """Add it to the command."""
    model_app.command()(evaluate)
