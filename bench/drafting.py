"""A local fleet with and without drafting from the source, in turn: `python -m bench.drafting [--json]`.

One pod on every core, the default model in bfloat16, corrections through the REST API. The two settings alternate
round by round, so that a machine whose speed drifts favours neither.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from copydesk.inference.checkpoint import prepare_default_model
from copydesk.loadtest import CorrectSender, Report, open_client, run_closed
from tests.fixtures.fleet import Fleet, running_fleet

WORKLOAD = Path(str(resources.files("copydesk.cli.bench").joinpath("data", "gec-workload.txt")))
SETTINGS = ("auto", "off")
CONCURRENCY = (1, 16)

Figures = dict[str, dict[int, list[Report]]]


async def load(fleet: Fleet, texts: Sequence[str], concurrency: int) -> Report:
    """Correct each text once, `concurrency` of them at a time."""
    async with open_client(fleet.url, timeout=300) as client:
        report = await run_closed(len(texts), CorrectSender(client, texts), concurrency=concurrency)
    if report.failed:
        raise SystemExit(f"{report.failed} of {report.sent} requests failed: {report.failures}")
    return report


def measure(texts: Sequence[str], rounds: int) -> Figures:
    """Return the reports by setting and concurrency, one a round."""
    model = str(prepare_default_model())
    found: Figures = {setting: {concurrency: [] for concurrency in CONCURRENCY} for setting in SETTINGS}
    for _ in range(rounds):
        for setting in SETTINGS:
            arguments = ("--model", model, "--dtype", "bfloat16", "--pods", "1")
            environ = {"COPYDESK_INFERENCE_DRAFT": setting}
            with (
                tempfile.TemporaryDirectory() as directory,
                running_fleet(Path(directory), *arguments, environ=environ) as fleet,
            ):
                for concurrency in CONCURRENCY:
                    report = asyncio.run(load(fleet, texts, concurrency))
                    found[setting][concurrency].append(report)
                    line = f"drafting {setting}, {concurrency} at a time: {report.achieved_rate:.2f} requests/s"
                    print(line, file=sys.stderr, flush=True)
    return found


def summary(found: Figures) -> dict[str, object]:
    """Medians over the rounds, and what drafting gains."""
    table = {setting: {c: _medians(reports) for c, reports in rows.items()} for setting, rows in found.items()}
    ratio = {
        c: {
            "requests_per_second": table["auto"][c]["requests_per_second"]
            / table["off"][c]["requests_per_second"],
            "p50_ms": table["auto"][c]["p50_ms"] / table["off"][c]["p50_ms"],
        }
        for c in CONCURRENCY
    }
    return {"by_drafting": table, "ratio_auto_to_off": ratio}


def render(found: Figures) -> str:
    """The medians as a table in Markdown."""
    rows = ["| drafting | at a time | requests/s | P50 ms | P99 ms |", "| --- | --- | --- | --- | --- |"]
    for setting, by_concurrency in found.items():
        for concurrency, reports in by_concurrency.items():
            figures = _medians(reports)
            cells = (figures["requests_per_second"], figures["p50_ms"], figures["p99_ms"])
            rows.append(f"| {setting} | {concurrency} | {cells[0]:.2f} | {cells[1]:.0f} | {cells[2]:.0f} |")
    return "\n".join(rows)


def _medians(reports: Sequence[Report]) -> dict[str, float]:
    latencies = [report.latency_ms for report in reports if report.latency_ms is not None]
    return {
        "requests_per_second": statistics.median(report.achieved_rate for report in reports),
        "p50_ms": statistics.median(latency.p50 for latency in latencies),
        "p99_ms": statistics.median(latency.p99 for latency in latencies),
    }


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.drafting", description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=Path, default=WORKLOAD, help="sentences, one a line")
    parser.add_argument("--count", type=int, default=60, help="how many of them (default: 60)")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of both settings (default: 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    found = measure(options.texts.read_text().splitlines()[: options.count], options.rounds)
    print(json.dumps(summary(found)) if options.json else render(found))


if __name__ == "__main__":
    main()
