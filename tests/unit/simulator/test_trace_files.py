"""Traces from files: the formats that are published, and files that are hostile or broken."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from copydesk.cli.main import app
from copydesk.simulator.trace import TraceError
from copydesk.simulator.trace_file import read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
NEWER_BURSTGPT = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def write(folder: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def minutes(line: str) -> str:
    return "".join(line.format(m) for m in range(3))


@pytest.mark.parametrize(
    "text",
    [
        AZURE + minutes("2023-11-16 18:{:02}:03.9799600,4808,10\n"),
        AZURE + minutes("2024-05-10 00:{:02}:00.009930+00:00,2162,5\n"),
        BURSTGPT + "5,ChatGPT,472,18,490,Conversation log\n65,GPT-4,10,0,10,API log\n125,GPT-4,1,1,2,API log\n",
        NEWER_BURSTGPT + "5,a,1.5,GPT-4,1,1,2,API log\n65,b,1,GPT-4,1,1,2,API log\n125,c,1,GPT-4,1,1,2,API log\n",
    ],
    ids=["azure-2023", "azure-2024", "burstgpt", "burstgpt-with-sessions"],
)
def test_published_formats_are_read_by_the_names_of_their_columns(tmp_path: Path, text: str) -> None:
    trace = read_trace(write(tmp_path, text))
    assert len(trace.rates) == 121
    assert np.flatnonzero(trace.rates).tolist() == [0, 60, 120]
    assert trace.name == "trace"


def test_rates_hold_until_the_next_one(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "time,rate\n0,5\n60,7.5\n120,0\n"))
    assert trace.rates.tolist() == [5.0] * 60 + [7.5] * 60 + [0.0] * 60


PLAIN = "time,rate\n" + "".join(f"{second},{second}\n" for second in range(60))


@pytest.mark.parametrize(
    "packed",
    [
        PLAIN.encode("utf-8-sig"),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\n\n").encode(),
        PLAIN.rstrip().encode(),
        gzip.compress(PLAIN.encode()),
        PLAIN.replace("time,rate", " Time , RATE ").encode(),
    ],
    ids=["bom", "crlf", "empty-lines", "no-last-newline", "gzip", "head-with-spaces"],
)
def test_the_same_trace_in_another_wrapping_is_the_same(tmp_path: Path, packed: bytes) -> None:
    assert read_trace(write(tmp_path, packed)).rates.tolist() == list(range(60))


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (BURSTGPT + "5,x,1,1,2,y\n4,x,1,1,2,y\n", 3, "backwards, by 1.000 s"),
        (BURSTGPT + "5,x,1,1,2,y\n5000,x,1,1,2,y\n", 3, "hole of 4995 s"),
        (BURSTGPT + "soon,x,1,1,2,y\n", 2, "no time"),
        (BURSTGPT + "nan,x,1,1,2,y\n", 2, "not finite"),
        (BURSTGPT + "1e400,x,1,1,2,y\n", 2, "not finite"),
        (BURSTGPT + "\n\n5,x\n4,x\n", 5, "backwards"),
        (BURSTGPT + '5,"a\nb",1\n4,x\n', 4, "backwards"),
        (AZURE + "2023-11-16 18:00:01,1,1\n2023-13-45 18:00:01,1,1\n", 3, "no time"),
        ("time,rate\n0,5\n60,5\n180,5\n", 4, "hole: 120 s"),
        ("time,rate\n0,5\n60,5\n50,5\n", 4, "backwards"),
        ("time,rate\n0,5\n60,5\n60,5\n", 4, "backwards"),
        ("time,rate\n0,5\n60\n", 3, "no number"),
        ("time,rate\n0,5\n60,many\n", 3, "no number"),
        ("time,rate\n0,5\n", 0, "fewer than two"),
        ("time,rate\n0,-5\n60,5\n", 0, "below 0"),
        ("time,requests\n0,5\n60,5\n", 1, "'requests' says how many: divide it"),
        ("Time,RPS\n0,5\n60,5\n", 1, "'rps' says how many: call it rate"),
        ("time,rate\n0,0\n60,0\n", 0, "no request"),
        ("when,what\n0,5\n", 1, "no column called timestamp or time"),
        ("", 1, "no column"),
        ("\n", 1, "no column"),
        (AZURE, 0, "no request"),
        (AZURE + "2023-11-16 18:00:01,1,1\n", 0, "1 s long, expected 60 s"),
        (AZURE.encode() + b"2023-11-16 18:00:01\xff,1,1\n", 2, "not UTF-8"),
        ("time,rate\n0,5\n" + "6" * 1_000_001 + ",5\n", 3, "longer than 1,000,000"),
        ('time,rate\n0,"' + "5" * 200_000 + "\n", 2, "no CSV"),
        (gzip.compress(PLAIN.encode())[:-20], 0, "gzip ends early"),
        (gzip.compress(PLAIN.encode())[:-8] + b"12345678", 0, "gzip"),
    ],
)
def test_what_cannot_be_replayed_is_refused_with_its_line(
    tmp_path: Path, text: str | bytes, line: int, reason: str
) -> None:
    with pytest.raises(TraceError, match=reason) as caught:
        read_trace(write(tmp_path, text))
    assert caught.value.line == line
    assert caught.value.exit_code == 2


def test_a_longer_gap_may_be_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, BURSTGPT + "5,x\n5000,x\n")
    assert len(read_trace(path, longest_gap_s=6000.0).rates) == 4996


def test_a_trace_of_years_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = write(tmp_path, BURSTGPT + "0,x\n1e15,x\n")
    with pytest.raises(TraceError, match="more than 70 days") as caught:
        read_trace(path, longest_gap_s=1e18)
    assert caught.value.line == 3


def test_requests_are_counted_as_they_come_and_not_kept(tmp_path: Path) -> None:
    count = 100_000
    rows = "".join(f"{number * 120.0 / count:.3f},x\n" for number in range(count))
    path = write(tmp_path, gzip.compress((BURSTGPT + rows).encode()))
    tracemalloc.start()
    try:
        trace = read_trace(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert trace.rates.sum() == count
    assert most < 5 * count  # one float a row would be eight bytes


def test_a_folder_or_nothing_is_said_to_be_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="directory"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "absent.csv")


def test_the_command_names_the_line_and_ends_with_code_2(tmp_path: Path) -> None:
    path = write(tmp_path, BURSTGPT + "5,x\n4,x\n")
    result = CliRunner().invoke(app, ["simulate", "fleet", "--trace", str(path)])
    assert result.exit_code == 2
    assert "trace.csv:3: time runs backwards" in result.stderr.replace("\n", "")
