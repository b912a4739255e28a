"""What came out, as plain data: a document for scripts, a table for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.image.running import Run

MB = 1e6
SPEEDUP_BAR = 10.0
AMPLIFICATION_BAR = 1.5
TOTAL_BAR = 1.3
WARM_BAR = 0.8
"""Of what overlayfs reads from the page cache: the same, but for what a busy machine adds."""


@dataclass(frozen=True)
class Case:
    """One way at one rate: `way` is normal, lazy (without a trace) or traced; `megabits` is the link's."""

    way: str
    megabits: float
    start: str
    run: Run

    @property
    def cold_mb_s(self) -> float:
        """How fast everything was read for the first time."""
        return self.run.read / MB / self.run.cold_s

    @property
    def warm_mb_s(self) -> float:
        """How fast it was read again, once files were open."""
        return self.run.read / MB / self.run.warm_s


@dataclass(frozen=True)
class Subject:
    """The image: sizes in bytes. `read_before_output` is what the program truly reads until its first output."""

    plain_size: int
    layers_size: int
    data_size: int
    hot_size: int
    read_before_output: int
    files: int


def document(subject: Subject, cases: Sequence[Case], machine: dict[str, object]) -> dict[str, object]:
    """The document for scripts; its main figures are those of the fastest link, with a trace."""
    fastest = max(case.megabits for case in cases)
    normal, traced = (_find(cases, way, fastest) for way in ("normal", "traced"))
    speedup = normal.run.first_output_s / traced.run.first_output_s
    amplification = traced.run.first_output_bytes / subject.read_before_output
    total = traced.run.end_s / normal.run.end_s
    warm = traced.warm_mb_s / normal.warm_mb_s
    return {
        "speedup_first_output": round(speedup, 2),
        "bytes_fetched_before_first_output": traced.run.first_output_bytes,
        "read_amplification": round(amplification, 3),
        "cold_mb_s": round(traced.cold_mb_s, 1),
        "warm_mb_s": round(traced.warm_mb_s, 1),
        "warm_share_of_overlayfs": round(warm, 3),
        "total_over_normal": round(total, 3),
        "bars": {
            "speedup_first_output": [SPEEDUP_BAR, speedup >= SPEEDUP_BAR],
            "read_amplification": [AMPLIFICATION_BAR, amplification <= AMPLIFICATION_BAR],
            "total_over_normal": [TOTAL_BAR, total <= TOTAL_BAR],
            "warm_share_of_overlayfs": [WARM_BAR, warm >= WARM_BAR],
        },
        "image": asdict(subject),
        "cases": [
            {
                "way": case.way,
                "megabits": case.megabits,
                "start": case.start,
                **{name: round(value, 3) for name, value in asdict(case.run).items()},
                "cold_mb_s": round(case.cold_mb_s, 1),
                "warm_mb_s": round(case.warm_mb_s, 1),
            }
            for case in cases
        ],
        "machine": machine,
    }


def table(subject: Subject, cases: Sequence[Case]) -> list[str]:
    """The table for people, in Markdown."""
    lines = [
        f"An image of {subject.plain_size / MB:,.0f} MB in {subject.files:,} files, packed "
        f"{subject.layers_size / MB:,.0f} MB; the start-up reads {subject.read_before_output / MB:,.1f} MB",
        "",
        "| link, Mbit/s | way | first output, s | sooner by | fetched before it, MB | cold, MB/s | warm, MB/s "
        "| everything, s |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in cases:
        run = case.run
        sooner = _find(cases, "normal", case.megabits).run.first_output_s / run.first_output_s
        lines.append(
            f"| {case.megabits:,.0f} | {case.way} | {run.first_output_s:.2f} | {sooner:.1f}x "
            f"| {run.first_output_bytes / MB:,.1f} | {case.cold_mb_s:,.0f} | {case.warm_mb_s:,.0f} "
            f"| {run.end_s:.1f} |"
        )
    return lines


def _find(cases: Sequence[Case], way: str, megabits: float) -> Case:
    return next(case for case in cases if (case.way, case.megabits) == (way, megabits))
