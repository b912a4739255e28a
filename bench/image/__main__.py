"""`python -m bench.image [--json]`: an image started while it is fetched, beside one that is pulled first.

An image of about 800 MiB, made here of this machine's Python, numpy and torch, lies in a real docker-registry
behind a link of 1 Gbit/s, then of 100 Mbit/s (a network namespace; tc's token bucket). containerd pulls it through
its CRI and starts it: on overlayfs, and with the image fetcher as its snapshotter, once as converted without a
trace, once with. With --stargz, the stargz snapshotter is measured too, at the first rate. The program imports
what --start names, prints a line, and then reads every file of the image twice.

Times begin with the pull and count the start of the container by runc. Bytes are those of the link, headers and
all. What the program itself reads until its first line comes from `copydesk image trace --exact`.

Needs root, docker-registry, containerd, runc, iproute2, binutils. Nothing is left behind, also when it is
interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from bench.image.building import GZIP_LEVEL, Layer, pack, push
from bench.image.content import PROGRAM_PATH, PYTHON, STARTS, Start, layers
from bench.image.errors import BenchError
from bench.image.figures import Case, Subject, document, table
from bench.image.network import Link, call, link
from bench.image.processes import Containerd, containerd, daemon, registry
from bench.image.running import run_pulled
from bench.image.stargz_snapshotter import Stargz
from copydesk.imagefetcher.control.client import ControlClient
from copydesk.imagefetcher.device.errors import MountError
from copydesk.imagefetcher.device.mounts import mounted, unmount
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.paths import snapshotter_socket
from copydesk.imagefetcher.registry.options import RegistryOptions

PROGRAMS = ("docker-registry", "containerd", "ctr", "runc", "ip", "tc", "ldconfig", "readelf")
QUICK_MEGABYTES = 60
FULL_MEGABYTES = 800
COMMAND_S = 1800.0


class Laboratory:
    """Everything that runs: the link, the registry behind it, containerd and the daemon before it."""

    def __init__(self, stack: ExitStack, folder: Path, stargz: Path | None) -> None:
        self.folder = folder
        self.link: Link = stack.enter_context(link())
        self.host: str = stack.enter_context(registry(self.link, folder / "registry"))
        others = folder / "stargz"
        others.mkdir()
        # A socket's path has at most 107 bytes.
        sockets: Path = stack.enter_context(_folder(None))
        self.stargz = (
            Stargz(stargz.resolve() / "bin", others, sockets / "stargz.sock", self.host) if stargz else None
        )
        if self.stargz:
            stack.enter_context(self.stargz.running())
        plugins = {"stargz": sockets / "stargz.sock"} if stargz else {}
        self.containerd: Containerd = stack.enter_context(
            containerd(self.host, folder / "containerd", sockets / "containerd.sock", plugins=plugins)
        )
        self.daemon: ControlClient = stack.enter_context(daemon(self.host, folder / "daemon", sockets / "run"))
        plugins = {"copydesk": snapshotter_socket(sockets / "run")}
        self.lazy: Containerd = stack.enter_context(
            containerd(self.host, folder / "lazy", sockets / "lazy.sock", "copydesk", plugins)
        )
        self.reference = f"{self.host}/bench/app:v1"
        self.stargz_reference = f"{self.host}/bench/app:stargz"

    def copydesk(self, *arguments: str) -> dict[str, Any]:
        """Call `copydesk image`; return what `--json` prints."""
        command = [sys.executable, "-m", "copydesk.cli", "image", *arguments[:1], self.reference]
        options = ["--json", "--plain-http-host", self.host, "--work-dir", str(self.folder)]
        done = call(*command, *options, *arguments[1:], timeout=COMMAND_S)
        found: dict[str, Any] = json.loads(done)
        return found

    def convert(self, trace: Path | None) -> dict[str, int]:
        """Convert the image; return what came of its one platform."""
        done = self.copydesk("convert", *(["--trace", str(trace)] if trace else []))
        (own,) = done["platforms"]
        return {name: int(own[name]) for name in ("data_size", "hot_size")}


def main() -> int:
    """Measure, and print; returns the exit status."""
    options = _parser().parse_args()
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        print(
            f"bench.image: {'needs root' if not missing else 'not installed: ' + ', '.join(missing)}",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        subject, cases = _measure(options)
    except (BenchError, ImageError) as error:
        print(f"bench.image: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench.image: interrupted", file=sys.stderr)
        return 130
    if not options.json:
        print("\n".join(table(subject, cases)))
    print(json.dumps(document(subject, cases, _machine())))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.image", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print no table before the JSON object")
    parser.add_argument("--quick", action="store_true", help="a small image, one rate: does it work?")
    parser.add_argument("--megabytes", type=int, help=f"of the image, in MiB (default: {FULL_MEGABYTES})")
    parser.add_argument("--rate", type=float, action="append", help="Mbit/s; repeatable (default: 1000 and 100)")
    parser.add_argument("--start", choices=sorted(STARTS), help="what the program imports (default: numpy)")
    parser.add_argument("--stargz", type=Path, help="where stargz/build.sh has put it, to measure it as well")
    parser.add_argument("--work-dir", type=Path, help="room for four times the image (default: TMPDIR)")
    return parser


def _measure(options: argparse.Namespace) -> tuple[Subject, list[Case]]:
    megabytes = options.megabytes or (QUICK_MEGABYTES if options.quick else FULL_MEGABYTES)
    rates = options.rate or ([1000.0] if options.quick else [1000.0, 100.0])
    start = STARTS[options.start or ("server" if options.quick else "numpy")]
    with _folder(options.work_dir) as folder, ExitStack() as stack:
        say(f"building an image of {megabytes} MiB")
        content = layers(megabytes, quick=options.quick)
        packed = pack(content, folder, 1 if options.quick else GZIP_LEVEL)
        laboratory = Laboratory(stack, folder, options.stargz)
        plain = RegistryOptions(plain_http_hosts=frozenset({laboratory.host}))
        asyncio.run(push(laboratory.reference, plain, packed))
        return _compare(laboratory, packed, start, rates, sum(map(len, content)))


def _compare(
    laboratory: Laboratory, packed: Sequence[Layer], start: Start, rates: Sequence[float], files: int
) -> tuple[Subject, list[Case]]:
    say("recording the start-up")
    trace = laboratory.folder / "trace.json"
    command = ["--until-output", "--", PYTHON, PROGRAM_PATH, "start", *start.modules]
    laboratory.copydesk("trace", "--out", str(trace), *command)
    exact = laboratory.copydesk("trace", "--exact", "--out", str(laboratory.folder / "exact.json"), *command)
    cases = []
    converted: dict[str, int] = {}
    ways = ["normal", *(["stargz"] if laboratory.stargz else []), "lazy", "traced"]
    for way in ways:
        if way == "stargz" and laboratory.stargz:
            say("converting for stargz")
            laboratory.stargz.optimise(
                laboratory.containerd, laboratory.reference, laboratory.stargz_reference, start
            )
        elif way != "normal":
            say(f"converting {'with' if way == 'traced' else 'without'} the trace")
            converted = laboratory.convert(trace if way == "traced" else None)
        for rate in rates[:1] if way == "stargz" else rates:
            say(f"{way} at {rate:g} Mbit/s")
            laboratory.link.shape(rate)
            cases.append(_case(laboratory, way, rate, start))
        laboratory.link.shape(10_000)
    subject = Subject(
        plain_size=sum(layer.plain_size for layer in packed),
        layers_size=sum(layer.size for layer in packed),
        data_size=converted["data_size"],
        hot_size=converted["hot_size"],
        read_before_output=exact["bytes_read"],
        files=files,
    )
    return subject, cases


def _case(laboratory: Laboratory, way: str, rate: float, start: Start) -> Case:
    link, containerd = laboratory.link, laboratory.containerd
    if way == "normal":
        run = run_pulled(link, containerd, laboratory.reference, start)
    elif way == "stargz" and laboratory.stargz:
        run = laboratory.stargz.run(link, containerd, laboratory.stargz_reference, start)
    else:
        run = run_pulled(link, laboratory.lazy, laboratory.reference, start)
        laboratory.daemon.clear_cache()
    return Case(way, rate, start.name, run)


@contextmanager
def _folder(parent: Path | None) -> Iterator[Path]:
    """A temporary folder under which nothing stays mounted."""
    with tempfile.TemporaryDirectory(prefix="bench-image-", dir=parent) as name:
        try:
            yield Path(name)
        finally:
            for mount in reversed(mounted()):
                if mount.target.startswith(f"{name}/"):
                    try:
                        unmount(Path(mount.target), detach=True)
                    except MountError as error:
                        say(str(error))


def say(line: str) -> None:
    """Tell what is being done."""
    print(line, file=sys.stderr, flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _machine() -> dict[str, object]:
    return {"python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count()}


if __name__ == "__main__":
    sys.exit(main())
