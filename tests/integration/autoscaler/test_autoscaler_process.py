"""The autoscaler as a process over a real nats-server, and what the command line shows of its decisions."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from copydesk.autoscaler.log_entry import Entry
from copydesk.autoscaler.log_file import read_entries
from copydesk.common.bus import Bus
from copydesk.loadtest.certificate import Certificate, CurvePoint, Hardware, Interval, write_certificate
from tests.fixtures.nats import NatsServer, free_port
from tests.fixtures.scaled_fleet import RATE, SLOTS, ScaledFleet, serving
from tests.fixtures.until import until

FAST = {
    "INTERVAL_MS": "100",
    "SETTLE_MS": "300",
    "CONCURRENCY": f"{SLOTS}",
    "RATE": f"{RATE}",
    "COLD_START_S": "1",
}


async def start(folder: Path, url: str = "", **settings: str) -> asyncio.subprocess.Process:
    environ = {f"COPYDESK_AUTOSCALER_{key}": value for key, value in {**FAST, **settings}.items() if value}
    if url:
        environ["COPYDESK_AUTOSCALER_NATS_URL"] = url
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "copydesk.autoscaler"),
        env={**os.environ, "COPYDESK_AUTOSCALER_STATE_DIR": str(folder), **environ},
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def autoscaler(folder: Path, url: str, **settings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await start(folder, url, **settings)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ends(folder: Path, url: str = "", **settings: str) -> tuple[int | None, str]:
    """Run it to its end, which is soon."""
    process = await start(folder, url, **settings)
    async with asyncio.timeout(30):
        _, err = await process.communicate()
    return process.returncode, err.decode()


async def tool(*arguments: str, **environ: str) -> tuple[int | None, str, str]:
    """Run `copydesk autoscaler ...`, on a machine without any fleet."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "copydesk.cli", "autoscaler", *arguments),
        env={**os.environ, "COLUMNS": "200", "XDG_STATE_HOME": "/nonexistent", **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    bus = await Bus.connect(nats_server.url, name="test")
    assert await bus.wait_connected(5)
    yield bus
    await bus.close()


def entries(folder: Path) -> list[Entry]:
    path = folder / "decisions.jsonl"
    return list(read_entries(path, Entry)) if path.exists() else []


async def test_decisions_are_served_logged_and_explained(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    port = free_port()
    fleet = ScaledFleet(bus, pods=2, now=time.monotonic)
    fleet.offered = 0.5 * RATE
    async with (
        serving(fleet),
        autoscaler(tmp_path, nats_server.url, METRICS_PORT=str(port), MAX_PODS="30") as process,
    ):
        await until(lambda: len(fleet.decisions) >= 5)
        fleet.offered = 5.0 * RATE
        await until(lambda: fleet.size >= 5)
        await until(lambda: len(entries(tmp_path)) >= 20)
        shown = await asyncio.to_thread(fetch, f"http://127.0.0.1:{port}")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            await process.wait()
        assert process.returncode == 0
    assert shown["/readyz"]["leader"]
    assert shown["/healthz"]["alive"]
    assert shown["/decisions"]["models"]["gec-en"][-1]["policy"] == "live"
    assert 'copydesk_autoscaler_moves_total{direction="up",model="gec-en",policy="live"}' in shown["/metrics"]
    assert (tmp_path / "gec-en.state.json").exists()
    await explained(tmp_path)


def fetch(url: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in ("/healthz", "/readyz", "/decisions", "/metrics"):
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            body = answer.read()
        found[path] = body.decode() if path == "/metrics" else json.loads(body)
    return found


async def explained(folder: Path) -> None:
    code, out, err = await tool("explain", COPYDESK_AUTOSCALER_STATE_DIR=str(folder))
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["time", "pods", "rule", "and", "then", "why"]
    assert re.search(r"\n\d\d:\d\d:\d\d to \d\d:\d\d:\d\d +2 +hold new leader +P99 \d+ ms", "\n" + out), out
    assert re.search(r"2 → \d+ \(\+\d+\) +panic .*demand has jumped", out), out
    code, out, _ = await tool(
        "explain", "--changes", "--json", "--last", "1", "--file", f"{folder}/decisions.jsonl"
    )
    last = msgspec.json.decode(out, type=Entry)
    assert last == [one for one in entries(folder) if one.replicas != one.size][-1]


@asynccontextmanager
async def watching(*arguments: str) -> AsyncIterator[asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "copydesk.cli", "autoscaler", "explain", "--watch", *arguments),
        env={**os.environ, "COLUMNS": "160", "XDG_STATE_HOME": "/nonexistent"},
        stdout=asyncio.subprocess.PIPE,
        # A shell starts what it runs in the background with SIGINT ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    try:
        yield process.stdout
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(15):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line_with(stream: asyncio.StreamReader, text: str) -> str:
    async with asyncio.timeout(30):
        while line := (await stream.readline()).decode():
            if text in line:
                return line
    raise AssertionError(f"{text!r} never came")


async def test_decisions_are_watched_as_they_come_from_the_log_and_over_nats(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=2, now=time.monotonic)
    fleet.offered = 0.5 * RATE
    log = tmp_path / "decisions.jsonl"
    async with serving(fleet), autoscaler(tmp_path, nats_server.url, MAX_PODS="30"):
        await until(log.exists)
        async with (
            watching("--file", str(log)) as read,
            watching("--nats-url", nats_server.url, "--json") as heard,
        ):
            await line_with(read, "hold new leader")
            await line_with(heard, "hold_new_leader")
            fleet.offered = 5.0 * RATE
            assert re.search(r"\d\d:\d\d:\d\d  gec-en +2 → ", await line_with(read, "panic"))
            assert msgspec.json.decode(await line_with(heard, "panic"), type=Entry).size == 2


SHADOW = "candidate: {name: lean, max_pods: 3, min_pods: 1}"


async def test_a_candidate_runs_beside_and_what_it_would_have_done_is_compared(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    (tmp_path / "shadow.yaml").write_text(SHADOW)
    fleet = ScaledFleet(bus, pods=2, cold_start=0.5, now=time.monotonic)
    fleet.offered = 0.5 * RATE
    settings = {"SHADOW_FILE": str(tmp_path / "shadow.yaml"), "LOG_FILE": str(tmp_path / "log" / "d.jsonl")}
    async with serving(fleet), autoscaler(tmp_path, nats_server.url, **settings):
        await until(lambda: len(fleet.shadows) >= 5)
        assert {one.policy for one in fleet.shadows} == {"lean"}
        fleet.offered = 5.0 * RATE
        await until(lambda: fleet.ready >= 5)
        heard = len(fleet.shadows)
        await until(lambda: len(fleet.shadows) >= heard + 10)
        live = await tool("explain", "--shadow", "--wait", "0.5", "--nats-url", nats_server.url)
    assert max(one.replicas for one in fleet.shadows) == 3
    assert {one.policy for one in fleet.decisions} == {"live"}
    assert live[0] == 0
    assert "lean" in live[1]
    await compared(tmp_path / "log" / "d.jsonl")


async def compared(log: Path) -> None:
    code, out, err = await tool("compare", "--file", str(log), "--json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)["comparisons"]
    assert (found["model"], found["candidate"]) == ("gec-en", "lean")
    assert found["candidate_pod_hours"] < found["live_pod_hours"]
    assert 0.0 < found["short_seconds"] <= found["seconds"]
    assert found["shed"] > 0
    assert {one["verdict"] for one in found["stretches"]} >= {"too_few"}
    assert all(one["pods"] < 0 for one in found["stretches"])
    code, out, _ = await tool("compare", "--file", str(log), "--from", "1h")
    assert code == 0
    assert "too few: fewer pods, and at times too few for the work" in out
    code, _, err = await tool("compare", "--file", str(log), "--to", "1h")
    assert code == 1
    assert "SHADOW_FILE" in err


async def test_a_killed_autoscaler_is_followed_by_one_that_goes_on_from_the_size_that_there_is(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=1, now=time.monotonic)
    fleet.offered = 0.5 * RATE
    async with serving(fleet):
        async with autoscaler(tmp_path, nats_server.url) as first:
            await until(lambda: len(fleet.decisions) >= 3)
            fleet.offered = 5.0 * RATE
            await until(lambda: fleet.size >= 3)
            first.kill()
        grown, before = fleet.size, len(fleet.decisions)
        fleet.offered = 0.2 * RATE
        async with autoscaler(tmp_path, nats_server.url):
            await until(lambda: len(fleet.decisions) >= before + 10)
        assert fleet.refused == []
        assert {one.replicas for one in fleet.decisions[before:]} == {grown}
        assert fleet.decisions[before].epoch > fleet.decisions[0].epoch
        assert fleet.decisions[before].sequence == 1


async def test_where_nobody_acts_decisions_are_published_for_people_only(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    fleet = ScaledFleet(bus, pods=2, now=time.monotonic)
    fleet.offered = 5.0 * RATE
    fleet.supervised = False
    async with serving(fleet), autoscaler(tmp_path, nats_server.url, ACTUATOR="shadow"):
        await until(lambda: len(fleet.shadows) >= 5)
    assert fleet.decisions == []
    assert {one.policy for one in fleet.shadows} == {"dry-run"}
    assert fleet.shadows[-1].inputs["size"] == 2
    assert {one.acted for one in entries(tmp_path)} == {"nobody acts"}


CERTIFICATE = Certificate(
    model="gec-en",
    model_digest="sha256:other",
    config_digest="",
    hardware=Hardware(name="EPYC"),
    slo_ms=1000.0,
    rate=50.0,
    concurrency=10.0,
    interval=Interval(45.0, 55.0),
    curve=(CurvePoint(rate=40.0, concurrency=5.0, p50_ms=50.0, p99_ms=100.0),),
    made_at=1.0,
)


async def test_a_certificate_for_other_weights_than_pods_report_ends_the_start(
    nats_server: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    path = tmp_path / "capacity.json"
    write_certificate(CERTIFICATE, path)
    fleet = ScaledFleet(bus, pods=2, now=time.monotonic)
    certified = {"CERTIFICATE": str(path), "CONCURRENCY": "", "RATE": ""}
    async with serving(fleet):
        code, err = await ends(tmp_path, nats_server.url, **certified)
        assert code == 2
        assert f"COPYDESK_AUTOSCALER_CERTIFICATE: {path} was made for weights sha256:other" in err
        fleet.digest = "sha256:other"
        async with autoscaler(tmp_path, nats_server.url, **certified):
            await until(lambda: len(fleet.decisions) >= 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"MIN_PODS": "5", "MAX_PODS": "4"}, "COPYDESK_AUTOSCALER_MAX_PODS: 4: expected min_pods (5) or more"),
        ({"MIN_PODS": "0"}, "COPYDESK_AUTOSCALER_MIN_PODS='0'"),
        ({"MODEL": "a.b"}, "COPYDESK_AUTOSCALER_MODEL='a.b'"),
        ({"CERTIFICATE": "/nonexistent.json", "CONCURRENCY": "", "RATE": ""}, "COPYDESK_AUTOSCALER_CERTIFICATE: "),
        ({"MODELS_FILE": "/nonexistent.yaml"}, "COPYDESK_AUTOSCALER_MODELS_FILE: /nonexistent.yaml: No such file"),
        ({"ACTUATOR": "kubernetes", "KUBE_CONFIG": "/nonexistent"}, "COPYDESK_AUTOSCALER_KUBE_CONFIG: "),
        ({"NATS_URL": "http://x"}, "COPYDESK_AUTOSCALER_NATS_URL: "),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_setting_with_which_nothing_can_begin_is_named_and_the_exit_code_is_2(
    tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    code, err = await ends(tmp_path, **settings)
    assert code == 2
    assert said in err
    assert "Traceback" not in err


async def test_without_decisions_the_command_says_where_it_looked_and_what_to_do(tmp_path: Path) -> None:
    nowhere = {"COPYDESK_AUTOSCALER_NATS_URL": f"nats://127.0.0.1:{free_port()}"}
    code, out, err = await tool("explain", COPYDESK_AUTOSCALER_STATE_DIR=str(tmp_path), **nowhere)
    assert (code, out) == (2, "")
    assert f"there is no decision log ({tmp_path}/decisions.jsonl" in err
    assert "copydesk up" in err
    code, _, err = await tool("explain", "--file", str(tmp_path / "none.jsonl"))
    assert code == 2
    assert "does not exist" in err
    (tmp_path / "empty.jsonl").write_text("half a li")
    code, _, err = await tool("explain", "--file", str(tmp_path / "empty.jsonl"), "--model", "gec-en")
    assert code == 1
    assert "without --model" in err
    code, _, err = await tool("compare", "--file", str(tmp_path / "empty.jsonl"), "--from", "yesterday")
    assert code == 2
    assert "'yesterday' is no moment" in err


async def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    one = Entry(
        time=1.0,
        model="m",
        epoch=1,
        sequence=1,
        policy="live",
        size=1,
        replicas=1,
        rule="steady",
        reason="x" * 1000,
    )
    line = msgspec.json.encode(one) + b"\n"
    log.write_bytes(line * 1000)
    command = f"{sys.executable} -m copydesk.cli autoscaler explain --json --last 1000 --file {log} | head -n 1"
    process = await asyncio.create_subprocess_shell(
        command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert (out, err) == (line, b"")
