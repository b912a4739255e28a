"""What can be said to `copydesk model`; as in `main`, only typer is imported here.

Sub-commands with options of their own are in modules of their own, whose `add_to(model_app)` is called at the end
of this one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from copydesk.cli import evaluating, onboarding_app, quantising, rolling_out

model_app = typer.Typer(help="Models: prepare, check and try them.", no_args_is_help=True)


@model_app.callback()
def model_root() -> None:
    """Models: prepare, check and try them."""


@model_app.command()
def prepare(
    json: Annotated[bool, typer.Option("--json", help="Progress and result as JSON, one object a line.")] = False,
) -> None:
    """Prepare the default model, and print its directory (its digest goes to stderr).

    It is made from its base and its adapter once, and kept in ~/.cache/copydesk (or COPYDESK_CACHE_DIR).

    [bold]Examples[/]

      copydesk model prepare

      MODEL_DIR=$(copydesk model prepare)

      copydesk model prepare --json | tail -n 1 | jq -r .directory
    """
    from copydesk.cli.commands.model import prepare as run_prepare

    raise typer.Exit(run_prepare(as_json=json))


@model_app.command()
def check(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A model's directory. (default: the default model)")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Say what fits there too: h100-80gb, l4-24gb, ...; repeatable."),
    ] = None,
    context: Annotated[
        int, typer.Option(min=2, max=131072, metavar="N", help="Tokens of a request, prompt and answer together.")
    ] = 512,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Look at a model's directory: what it is, who can serve it, where it fits, what is wrong.

    Only headers are read, so that it takes a second whatever the size, and nothing in it
    is run: pickled weights are refused unopened, the chat template is tried in a sandbox.
    The page goes to standard output, problems to standard error, each with what to do.

    Exit code 2 means that the model cannot be used as it is; warnings do not count.

    [bold]Examples[/]

      copydesk model check

      copydesk model check ~/models/candidate --target h100-80gb --target l4-24gb

      copydesk model check ~/models/candidate --json | jq '.usable, .problems'
    """
    from copydesk.cli.commands.model_check import CheckRequest
    from copydesk.cli.commands.model_check import check as run_check

    raise typer.Exit(run_check(CheckRequest(directory, tuple(target or ()), context, json)))


@model_app.command()
def correct(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="A model's directory. (default: the default model)")
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(metavar="TYPE", help="Arithmetic, as of copydesk up. (default: what is fastest here)"),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with the edits.")] = False,
) -> None:
    """Correct standard input with a model, one sentence a line, without a fleet.

    A line comes out for each line that goes in, in the same order and as soon as it is
    known. Sentences are worked on side by side, with the engine, the prompt and the checks
    of a pod: what it would leave as it is stays as it is here. Blank lines stay, and white
    space around a sentence. A line that is too long for the model is left as it is, with a
    warning. A line is taken for one sentence: split texts first, or ask a fleet for whole
    ones (copydesk correct). The settings of a pod (COPYDESK_INFERENCE_SLOTS, _THREADS, ...)
    hold here too.

    Exit code 2 means that the model cannot be used, or that a line is no UTF-8.

    [bold]Examples[/]

      copydesk model correct < sentences.txt > corrections.txt

      copydesk model correct ~/models/candidate --dtype float32 < sentences.txt

      echo "she go home" | copydesk model correct --json | jq .edits
    """
    from copydesk.cli.commands.model_correct import CorrectRequest
    from copydesk.cli.commands.model_correct import correct as run_correct

    raise typer.Exit(run_correct(CorrectRequest(directory, dtype, as_json=json)))


evaluating.add_to(model_app)
quantising.add_to(model_app)
onboarding_app.add_to(model_app)
rolling_out.add_to(model_app)
