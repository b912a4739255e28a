"""The copydesk command line: what can be said, and where each sub-command's work is.

Only typer is imported here; a sub-command imports what it needs when it is called.
"""

from __future__ import annotations

import errno
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from copydesk.cli import measuring
from copydesk.cli.autoscaler_app import autoscaler_app
from copydesk.cli.chaos_app import chaos
from copydesk.cli.eds_app import eds_app
from copydesk.cli.image_node_app import image_app
from copydesk.cli.model_app import model_app
from copydesk.cli.options import Url
from copydesk.cli.simulate_app import simulate_app

if TYPE_CHECKING:
    from copydesk.cli.bench.vllm_contender import NGram
    from copydesk.cli.fleet.plan import Scaling

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
app.add_typer(model_app, name="model")
bench_app = typer.Typer(help="Benchmarks: this engine beside others, a fleet under load.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
app.add_typer(simulate_app, name="simulate")
app.add_typer(eds_app, name="eds")
app.add_typer(autoscaler_app, name="autoscaler")
app.add_typer(image_app, name="image")


class Dtype(StrEnum):
    """The arithmetic of a pod."""

    AUTO = "auto"
    FP8 = "fp8"
    INT8 = "int8"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Engine(StrEnum):
    """What computes in a pod."""

    NATIVE = "native"
    VLLM = "vllm"


Pods = Annotated[
    int, typer.Option(min=1, max=256, metavar="N", help="How many inference pods; they share the cores.")
]
Model = Annotated[Path | None, typer.Option(metavar="DIR", help=MODEL_HELP)]
DtypeOption = Annotated[
    Dtype,
    typer.Option(
        metavar="TYPE",
        help="Arithmetic: int8, bfloat16, float32, or auto: what is fastest here. fp8 needs a model in FP8; a CPU "
        "emulates it, to judge the answers of a GPU.",
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
    pods: Annotated[
        int | None,
        typer.Option(
            min=1, max=256, metavar="N", help="How many inference pods; they share the cores. (default: 2)"
        ),
    ] = None,
    autoscale: Annotated[
        str | None,
        typer.Option(
            metavar="MIN:MAX",
            help="As many pods as the load asks for, within these limits, instead of --pods.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What a pod can do, from copydesk capacity, for --autoscale. (default: an assumption)",
        ),
    ] = None,
    model: Model = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Run what a model profile says: model, engine settings, autoscaler's target."
        ),
    ] = None,
    candidate: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE",
            help="Another version, by directory or profile, for copydesk model rollout to choose between.",
        ),
    ] = None,
    candidate_pods: Annotated[
        int, typer.Option(min=1, max=256, metavar="N", help="How many pods run that version, beside the others.")
    ] = 1,
    port: Annotated[
        int, typer.Option(min=1, max=65535, metavar="PORT", help="Where the gateway listens on 127.0.0.1.")
    ] = 8080,
    dtype: DtypeOption = Dtype.AUTO,
    engine: Annotated[
        Engine | None,
        typer.Option(
            metavar="ENGINE",
            help="What computes: native, or vllm where it is installed: see docs/vllm.md. (default: native)",
        ),
    ] = None,
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

    With --autoscale it starts MIN pods and an autoscaler, which adds pods as the load
    rises, at once, and drains them as it falls, minutes later. Each pod has the threads
    that it has in a fleet of MAX pods, since these share the cores.

    Exit code 2 means that it cannot start as asked: the port is taken, a model, profile or
    certificate is not for this, limits cannot be kept.

    [bold]Examples[/]

      copydesk up

      copydesk up --pods 4 --port 9000

      copydesk up --autoscale 1:4 --certificate capacity.json

      copydesk up --model ~/models/my-llama --dtype float32

      copydesk up --profile my-llama.yaml --autoscale 1:4

      copydesk up --candidate ~/models/new

      copydesk up --json | jq -r .event
    """
    from copydesk.cli.commands.up import UpRequest
    from copydesk.cli.commands.up import up as run_up

    if profile is not None and model is not None:
        raise typer.BadParameter("it says which model, and --model does too", param_hint="--profile")
    scaling = _scaling(pods, autoscale, certificate)
    if candidate is not None and scaling is not None:
        raise typer.BadParameter("it is for a fleet that keeps its size", param_hint="--candidate")
    shown = (sys.stdout.isatty() and not json) if show is None else show
    request = UpRequest(
        pods or 2,
        model,
        port,
        dtype.value,
        state_dir,
        as_json=json,
        show=shown,
        scaling=scaling,
        engine=engine.value if engine else "",
        profile=profile,
        candidate=candidate,
        candidate_pods=candidate_pods,
    )
    raise typer.Exit(run_up(request))


def _scaling(pods: int | None, autoscale: str | None, certificate: Path | None) -> Scaling | None:
    from copydesk.cli.fleet.plan import Scaling
    from copydesk.cli.fleet.scaling import Limits, LimitsError

    if autoscale is None:
        if certificate is not None:
            raise typer.BadParameter("it is for --autoscale MIN:MAX", param_hint="--certificate")
        return None
    if pods is not None:
        raise typer.BadParameter(
            "--pods is for a fleet that keeps its size; give one of them", param_hint="--autoscale"
        )
    try:
        return Scaling(Limits.parse(autoscale), certificate)
    except LimitsError as error:
        raise typer.BadParameter(str(error), param_hint="--autoscale") from error


@app.command()
def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where they go, a folder for each part.")],
    days: Annotated[int, typer.Option(min=1, max=3650, metavar="N", help="How long they hold.")] = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="New keys and certificates of the authority that is there.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Make the certificates that the parts of a fleet show one another.

    An authority of the fleet's own, and for gateway, inference, eds, autoscaler,
    image-fetcher and nats a folder with tls.crt, tls.key and ca.crt. Nothing is
    overwritten without --renew; services that run take to renewed ones by themselves.
    """
    from copydesk.cli.commands.certificates import CertificatesRequest
    from copydesk.cli.commands.certificates import certificates as make

    raise typer.Exit(make(CertificatesRequest(folder, days, renew, json)))


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


@bench_app.callback()
def bench_root() -> None:
    """Benchmarks: this engine beside others, a fleet under load."""


@bench_app.command()
def engine(
    engines: Annotated[
        str, typer.Option(metavar="NAME,...", help="Engines or single settings. (default: all that are installed)")
    ] = "",
    texts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sentences, one a line. (default: those that come with it)")
    ] = None,
    model: Model = None,
    count: Annotated[int, typer.Option(min=2, metavar="N", help="How many of the sentences.")] = 240,
    alone: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many of them one at a time, over all rounds.")
    ] = 120,
    rounds: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Every engine's turns.")] = 3,
    concurrency: Annotated[
        str, typer.Option(metavar="N,...", help="Users at a time, beside one; the best of these counts.")
    ] = "64,128",
    random: Annotated[
        bool, typer.Option("--random/--no-random", help="50 random tokens in and out as well, without drafts.")
    ] = True,
    vllm_ngram: Annotated[
        list[str] | None,
        typer.Option(
            metavar="T:L:S",
            help="vLLM guesses T tokens after a match of L to S; repeatable. (default: the best here)",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="One round of few sentences: to see that it works.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    show: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Show a run that --json wrote, and measure nothing.")
    ] = None,
    set_up: Annotated[
        bool, typer.Option("--set-up", help="Install the other engines, and measure nothing.")
    ] = False,
    rivals_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            envvar="COPYDESK_BENCH_RIVALS_DIR",
            help="Where the other engines are installed. (default: ~/.cache/copydesk/rivals)",
        ),
    ] = None,
) -> None:
    """Measure this engine beside others, on the same sentences.

    Engines: copydesk, vllm, openvino, ctranslate2, each in several settings. All are
    started once; then they take turns on all cores, and whoever has no turn is frozen.
    One user at a time shows latency, many show the rate. Everything takes about an hour
    and 20 GB of memory. Progress goes to standard error, tables to standard output.

    Exit code 1 means that an engine failed, 2 that there was nothing to measure.

    [bold]Examples[/]

      copydesk bench engine --set-up

      copydesk bench engine --quick --engines copydesk

      copydesk bench engine --engines "copydesk int8 draft,vllm" --rounds 2

      copydesk bench engine --json > run.json; copydesk bench engine --show run.json
    """
    from copydesk.cli.commands import bench

    names = [name.strip() for name in engines.split(",") if name.strip()]
    if show is not None:
        raise typer.Exit(bench.show_saved(show))
    if set_up:
        raise typer.Exit(bench.set_up(names, rivals_dir))
    request = bench.BenchRequest(
        engines=tuple(names),
        texts=texts,
        model=model,
        count=min(count, 24) if quick else count,
        alone=min(alone, 6) if quick else alone,
        rounds=1 if quick else rounds,
        users=_users("16" if quick else concurrency),
        random=random and not quick,
        ngrams=_ngrams(vllm_ngram or []),
        rivals_dir=rivals_dir,
        as_json=json,
    )
    raise typer.Exit(bench.bench_engine(request))


def _users(text: str) -> tuple[int, ...]:
    try:
        users = sorted({int(part) for part in text.split(",")} - {1})
    except ValueError:
        users = []
    if not users or users[0] < 1:
        raise typer.BadParameter(f"{text!r}; expected numbers like 64,128", param_hint="--concurrency")
    return tuple(users)


def _ngrams(texts: list[str]) -> tuple[NGram, ...]:
    from copydesk.cli.bench.vllm_contender import NGram

    try:
        return tuple(map(NGram.parse, texts))
    except ValueError as error:
        message = f"{', '.join(texts)}; expected tokens:longest:shortest, like 8:4:2"
        raise typer.BadParameter(message, param_hint="--vllm-ngram") from error


measuring.add_to(app, bench_app)
app.command()(chaos)


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
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"error: the output cannot be written: {error.strerror}")
