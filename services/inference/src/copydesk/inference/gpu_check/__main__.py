"""`python -m copydesk.inference.gpu_check`: see `scripts/gpu_check.sh`."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from copydesk.inference.gpu_check.requirements import ENGINE, complaint, missing

FAILED, LACKING = 1, 2
_PARTS = ("machine", "kernels", "parity", "rates", "rates-large", "pods", "pods-large")
_ONLY = f"run these parts alone: {', '.join(_PARTS)}"


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check.sh",
        description="Check the GPU path of the inference engine on this machine, and measure it.",
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu for a dry run (default: cuda)")
    parser.add_argument(
        "--quick", action="store_true", help="tiny models and short turns: shows that all of it runs"
    )
    parser.add_argument("--model", type=Path, help="directory of a real model, in place of made-up weights")
    parser.add_argument("--sentences", type=Path, help="what it corrects, a sentence a line")
    parser.add_argument("--only", nargs="+", default=[], choices=_PARTS, metavar="PART", help=_ONLY)
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each row, as it comes")
    parser.add_argument("--work", type=Path, help="folder for what is written on the way (default: one in /tmp)")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if everything that was checked is right, whatever the bars say."""
    options = parse_arguments(arguments)
    if lacking := missing(ENGINE):
        print(f"{complaint(lacking, 'the check')}\npip install {' '.join(lacking)}", file=sys.stderr)
        return LACKING
    if (reason := _unusable(options)) is not None:
        print(reason, file=sys.stderr)
        return LACKING
    if options.work is not None:
        return _check(options, options.work)
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as work:
        return _check(options, Path(work))


def _unusable(options: argparse.Namespace) -> str | None:
    """Why nothing could be checked: known before minutes of a GPU go by."""
    if options.model is not None and not (options.model / "config.json").is_file():
        return f"--model {options.model}: there is no config.json"
    if options.sentences is not None and not options.sentences.is_file():
        return f"--sentences {options.sentences}: there is no such file"
    if options.device == "cpu":
        return None
    name = re.fullmatch(r"cuda(?::(\d{1,3}))?", options.device)
    if name is None:
        return f"--device {options.device}: expected cuda, cuda:N or cpu"
    found = _gpus()
    if not found:
        return "torch finds no GPU here; --device cpu --quick is a dry run"
    return None if int(name[1] or 0) < found else f"--device {options.device}: torch finds {found} GPUs, from 0 on"


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _check(options: argparse.Namespace, work: Path) -> int:
    from copydesk.common.telemetry import configure_logging
    from copydesk.inference.gpu_check.parts import PARTS, SECONDS, Request, parts_of
    from copydesk.inference.gpu_check.rows import Row, with_ratios
    from copydesk.inference.gpu_check.running import run_all, run_apart, run_here
    from copydesk.inference.gpu_check.table import table
    from copydesk.inference.gpu_check.verdict import bars

    configure_logging("gpu_check", level="error")
    work.mkdir(parents=True, exist_ok=True)
    request = Request(options.device, work, options.model, options.sentences, options.quick)
    if options.part is not None:
        part = next(part for part in PARTS if part.name == options.part)
        for row in run_here(part, request, part.seconds):
            print(row.line(), flush=True)
        return 0
    rows: list[Row] = []
    run = run_here if request.quick else run_apart
    for row in run_all(parts_of(request, options.only), request, SECONDS, run):
        rows = with_ratios([*rows, row])
        print(
            rows[-1].line() if options.json else f"{row.part}: {row.setting} {row.value or ''}",
            flush=True,
            file=sys.stdout if options.json else sys.stderr,
        )
    judged = [] if request.quick else bars(rows)
    if options.json:
        for row in judged:
            print(row.line())
    else:
        print(table([*rows, *judged]))
    return FAILED if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
