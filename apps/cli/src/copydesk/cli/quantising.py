"""What can be said to `copydesk model quantize`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class NumberFormat(StrEnum):
    """What the weights are stored in."""

    FP8 = "fp8"
    INT8 = "int8"


def quantize(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The original, in Hugging Face's layout.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the result goes; nothing may be there yet.")],
    scheme: Annotated[
        NumberFormat, typer.Option(metavar="fp8|int8", help="The numbers: 8-bit floating point, or integers.")
    ] = NumberFormat.FP8,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Leave these as they are: attention, mlp, first-last, names with wildcards, "
            "or re: and a regular expression; repeatable.",
        ),
    ] = None,
    per_tensor: Annotated[
        bool, typer.Option("--per-tensor", help="One scale a weight, instead of one an output channel.")
    ] = False,
    report: Annotated[
        bool,
        typer.Option(
            "--report/--no-report",
            help="Run texts through the model to see what it loses: minutes on a few cores, seconds without.",
        ),
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Make a model half as large: linear maps in 8 bits, in the compressed-tensors format.

    Weights get one scale an output channel, activations are rounded as they come, one
    scale a token. Embedding, norms and output head stay as they are. The same model and
    options give the same files, byte by byte. Memory is needed for a layer, not a model.

    The report says what each module loses, and how often the result chooses the token
    that the original chooses; it is kept beside the weights as quantisation-report.json.

    Exit code 2 means that it cannot be done as asked, and that nothing was written.

    [bold]Examples[/]

      copydesk model quantize $(copydesk model prepare) --out gec-en-fp8

      copydesk model quantize DIR --out DIR-mixed --keep attention --keep first-last

      copydesk model quantize DIR --out DIR-int8 --scheme int8 --no-report

      copydesk model quantize DIR --out OUT --keep '*.down_proj' --json | jq .report.agreement
    """
    from copydesk.cli.commands.model_quantize import QuantizeRequest
    from copydesk.cli.commands.model_quantize import quantize as run_quantize

    request = QuantizeRequest(
        directory=directory,
        out=out,
        scheme=scheme.value,
        keep=tuple(keep or ()),
        per_tensor=per_tensor,
        measure=report,
        as_json=json,
    )
    raise typer.Exit(run_quantize(request))


def add_to(model_app: typer.Typer) -> None:
    """Add it to the command's models."""
    model_app.command()(quantize)
