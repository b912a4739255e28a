"""What can be said to `copydesk model`; as in `main`, only typer is imported here.

Sub-commands with options of their own are in modules of their own, whose `add_to(model_app)` is called at the end
of this one.
"""

from __future__ import annotations

from typing import Annotated

import typer

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
