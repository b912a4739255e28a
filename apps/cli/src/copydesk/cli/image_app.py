"""What can be said to `copydesk image`; as in `main`, only typer is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from copydesk.cli.commands.image_request import Access

image_app = typer.Typer(help="Container images that start before they are there.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="REF", help="As in registry.example/app:v1, or app@sha256:...")]
PlainHttp = Annotated[bool, typer.Option("--plain-http", help="No TLS to registries on this machine.")]
PlainHttpHost = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="No TLS to this registry (with its port), wherever it is; repeatable."),
]
Authorities = Annotated[
    Path | None, typer.Option("--ca", metavar="FILE", help="Trust these certificates. (default: the system's)")
]
Platforms = Annotated[
    list[str] | None,
    typer.Option("--platform", metavar="OS/ARCH", help="As in linux/arm64; repeatable. (default: all)"),
]
WorkDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Room for the image, plain and packed, while at work. (default: TMPDIR)"),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]


@image_app.callback()
def image_root() -> None:
    """Container images that start before they are there."""


def _access(plain_http: bool, hosts: list[str] | None, authorities: Path | None) -> Access:
    from copydesk.cli.commands.image_request import Access

    return Access(plain_http, frozenset(hosts or ()), authorities)


@image_app.command()
def convert(
    ref: Ref,
    to: Annotated[
        str | None, typer.Option(metavar="REF", help="Copy the image there first. (default: push beside it)")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What a start-up reads comes first; see image trace.")
    ] = None,
    platform: Platforms = None,
    work_dir: WorkDir = None,
    plain_http: PlainHttp = False,
    plain_http_host: PlainHttpHost = None,
    ca: Authorities = None,
    json: Json = False,
) -> None:
    """Convert an image, so that nodes can start it at once and fetch what it reads.

    The image itself stays as it is. What is pushed is an artifact that refers to it:
    a node with Copydesk's image fetcher finds it, any other pulls as before. The same
    image and trace always give the same artifact. Credentials are docker's.
    """
    from copydesk.cli.commands.image_convert import ConvertRequest, run_convert

    access = _access(plain_http, plain_http_host, ca)
    raise typer.Exit(run_convert(ConvertRequest(ref, to, trace, tuple(platform or ()), work_dir, access, json)))


@image_app.command()
def copy(
    ref: Ref,
    to: Annotated[str, typer.Argument(metavar="TO", help="Where to, in the same registry or another.")],
    artifacts: Annotated[
        bool, typer.Option("--artifacts/--no-artifacts", help="With what was converted of it.")
    ] = True,
    work_dir: WorkDir = None,
    plain_http: PlainHttp = False,
    plain_http_host: PlainHttpHost = None,
    ca: Authorities = None,
    json: Json = False,
) -> None:
    """Copy an image with its artifact: every platform, bytes and digests unchanged."""
    from copydesk.cli.commands.image_copy import CopyRequest, run_copy

    access = _access(plain_http, plain_http_host, ca)
    raise typer.Exit(run_copy(CopyRequest(ref, to, artifacts, work_dir, access, json)))


@image_app.command()
def inspect(
    ref: Ref,
    platform: Platforms = None,
    plain_http: PlainHttp = False,
    plain_http_host: PlainHttpHost = None,
    ca: Authorities = None,
    json: Json = False,
) -> None:
    """Show an image's platforms, and what was converted of each."""
    from copydesk.cli.commands.image_inspect import InspectRequest, run_inspect

    access = _access(plain_http, plain_http_host, ca)
    raise typer.Exit(run_inspect(InspectRequest(ref, tuple(platform or ()), access, json)))


@image_app.command()
def trace(
    ref: Ref,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="What to run. (default: the image's own)")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the trace there. (default: NAME.trace.json)")
    ] = None,
    until_output: Annotated[
        bool, typer.Option("--until-output", help="End with the first byte on stdout or stderr.")
    ] = False,
    ready_url: Annotated[
        str, typer.Option(metavar="URL", help="End when this answers with 200 to 299.", show_default=False)
    ] = "",
    seconds: Annotated[
        float | None, typer.Option(metavar="N", min=0.0, help="End after N seconds at the latest.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Only what the program touches, not what is read ahead: to measure.")
    ] = False,
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="NAME=VALUE", help="Set for the command; repeatable.")
    ] = None,
    platform: Annotated[
        str, typer.Option(metavar="OS/ARCH", help="Of an image for several. (default: this machine's)")
    ] = "",
    work_dir: WorkDir = None,
    plain_http: PlainHttp = False,
    plain_http_host: PlainHttpHost = None,
    ca: Authorities = None,
    json: Json = False,
) -> None:
    """Run an image once, here, and record which parts of its files the start-up reads.

    Give the file to `convert --trace`: nodes then fetch these parts first. As root. The command
    runs in a container of its own, but with this machine's network, until it ends, or one of
    the options says that it has started, or Ctrl-C.
    """
    from copydesk.cli.commands.image_trace import TraceRequest, run_trace
    from copydesk.imagefetcher.tracing.ending import Until

    for entry in env or ():
        if not entry.partition("=")[1]:
            raise typer.BadParameter(f"expected NAME=VALUE, not {entry!r}", param_hint="--env")
    until = Until(until_output, ready_url, seconds)
    access = _access(plain_http, plain_http_host, ca)
    request = TraceRequest(
        ref, tuple(command or ()), out, tuple(env or ()), platform, until, exact, work_dir, access, json
    )
    raise typer.Exit(run_trace(request))


@image_app.command()
def verify(
    ref: Ref,
    platform: Platforms = None,
    work_dir: WorkDir = None,
    plain_http: PlainHttp = False,
    plain_http_host: PlainHttpHost = None,
    ca: Authorities = None,
    json: Json = False,
) -> None:
    """Prove that an artifact holds what its image does: every name, attribute and byte.

    Fetches both whole and compares them. Exit code 1 if there is a difference, or no artifact.
    """
    from copydesk.cli.commands.image_verify import VerifyRequest, run_verify

    access = _access(plain_http, plain_http_host, ca)
    raise typer.Exit(run_verify(VerifyRequest(ref, tuple(platform or ()), work_dir, access, json)))
