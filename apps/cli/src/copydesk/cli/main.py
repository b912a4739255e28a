"""The copydesk command line: what can be said, and where each sub-command's work is.

Only typer is imported here; a sub-command imports what it needs when it is called.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

MODEL_HELP = "A Llama-family directory in Hugging Face's layout. (default: the English model, prepared once)"

app = typer.Typer(
    name="copydesk",
    help="Correct English with a fleet of small, fast language models on this machine.",
    epilog="Begin with: copydesk up, and in another terminal: copydesk correct 'she go home'",
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
model_app = typer.Typer(help="Models: prepare the default one.", no_args_is_help=True)
app.add_typer(model_app, name="model")


class Dtype(StrEnum):
    """The arithmetic of a pod."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


Pods = Annotated[
    int, typer.Option(min=1, max=256, metavar="N", help="How many inference pods; they share the cores.")
]
Model = Annotated[Path | None, typer.Option(metavar="DIR", help=MODEL_HELP)]
DtypeOption = Annotated[
    Dtype,
    typer.Option(metavar="TYPE", help="Arithmetic: float32, bfloat16, or auto, which takes what is fastest here."),
]


def _checked_url(value: str | None) -> str | None:
    from urllib.parse import urlsplit

    if value is None:
        return None
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise typer.BadParameter(f"{value!r} is no URL of a fleet; expected something like http://127.0.0.1:8080")
    return value


Url = Annotated[
    str | None,
    typer.Option(
        envvar="COPYDESK_URL",
        callback=_checked_url,
        help="The fleet to talk to. (default: the one that runs here)",
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Where logs and state go. (default: one directory a port, see copydesk status)"
    ),
]


def _version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    typer.echo(f"copydesk {version('copydesk-cli')}")
    raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it.")] = False,
) -> None:
    """Correct English with a fleet of small, fast language models on this machine."""


@app.command()
def up(
    pods: Pods = 2,
    model: Model = None,
    port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="PORT", help="Where the gateway listens on 127.0.0.1.")
    ] = 8080,
    dtype: DtypeOption = Dtype.AUTO,
    state_dir: StateDir = None,
    json: Annotated[bool, typer.Option("--json", help="Events as JSON, one object a line.")] = False,
    show: Annotated[
        bool | None,
        typer.Option("--show/--no-show", help="Correct three sentences once ready. (default: on a terminal)"),
    ] = None,
) -> None:
    """Start a fleet and keep it running until Ctrl-C.

    NATS, endpoint discovery, inference pods and a gateway, each a process of its own.
    One that dies is restarted. Ctrl-C answers what was accepted and stops them all.

    [bold]Examples[/]

      copydesk up

      copydesk up --pods 4 --port 9000

      copydesk up --model ~/models/my-llama --dtype float32

      copydesk up --json | jq -r .event
    """
    from copydesk.cli.commands.up import UpRequest
    from copydesk.cli.commands.up import up as run_up

    shown = (sys.stdout.isatty() and not json) if show is None else show
    raise typer.Exit(run_up(UpRequest(pods, model, port, dtype.value, state_dir, as_json=json, show=shown)))


@app.command()
def status(
    url: Url = None,
    state_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The fleet that was started with this --state-dir.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="As one JSON object (with --watch: one a line).")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")] = False,
) -> None:
    """Show the processes and pods of a fleet.

    Exit code 1 means that its gateway does not answer.

    [bold]Examples[/]

      copydesk status

      copydesk status --watch

      copydesk status --json | jq '.pods[] | .id, .state'
    """
    from copydesk.cli.commands.status import status as show_status

    raise typer.Exit(show_status(url, state_dir, as_json=json, watch=watch))


@app.command()
def correct(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="(default: read standard input)")
    ] = None,
    url: Url = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a text (of standard input: a part of it).")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what changed inside the text.")] = False,
) -> None:
    """Correct text through a running fleet.

    The corrected text goes to standard output, with every space and newline where it was.
    Exit code 2 means that the input cannot be corrected, 1 that the fleet cannot do it now.

    [bold]Examples[/]

      copydesk correct "she go home"

      copydesk correct --diff "I has two brother."

      copydesk correct < letter.txt > corrected.txt

      echo "They was late." | copydesk correct --json
    """
    from copydesk.cli.commands.correct import correct as run_correct

    raise typer.Exit(run_correct(texts or [], url=url, as_json=json, diff=diff))


@app.command()
def demo(pods: Pods = 2, model: Model = None, dtype: DtypeOption = Dtype.AUTO) -> None:
    """Start a fleet on free ports, correct a few sentences, stop it.

    Each correction is one JSON line on standard output; everything else goes to standard error.

    [bold]Examples[/]

      copydesk demo

      copydesk demo 2>/dev/null | jq -r .corrected
    """
    from copydesk.cli.commands.demo import demo as run_demo

    raise typer.Exit(run_demo(pods, model, dtype.value))


@model_app.callback()
def model_root() -> None:
    """Models: prepare the default one."""


@model_app.command()
def prepare(
    json: Annotated[bool, typer.Option("--json", help="Progress and result as JSON, one object a line.")] = False,
) -> None:
    """Prepare the default model, and print its directory and digest.

    It is made from its base and its adapter once, and kept in ~/.cache/copydesk (or COPYDESK_CACHE_DIR).

    [bold]Examples[/]

      copydesk model prepare

      copydesk model prepare --json | tail -n 1 | jq -r .directory
    """
    from copydesk.cli.commands.model import prepare as run_prepare

    raise typer.Exit(run_prepare(as_json=json))


def run() -> None:
    """Be the command: parse the arguments, do what they say, exit with its code."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
