"""`copydesk eds inspect` as a process: over a real nats-server, from a file, and without either."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.eds.api_server import kube_config
from bench.eds.processes import part
from copydesk.cli.discovery.nats_origin import NatsOrigin, find_nats
from copydesk.cli.discovery.origin import Origin, OriginError
from copydesk.cli.discovery.source_origin import SourceOrigin
from copydesk.cli.fleet.state import FleetState, ProcessState, default_state_dir, write_state
from copydesk.common.bus import Bus
from copydesk.common.messages import Endpoint, EndpointsSnapshot, EndpointState, endpoints_subject
from copydesk.common.status_server import Answer, StatusServer
from copydesk.eds.view import HeldView, ModelView, ReplicaView
from tests.fixtures.nats import NatsServer, free_port

READY, DRAINING = EndpointState.READY, EndpointState.DRAINING


def snapshot(model: str, generation: int, **pods: EndpointState) -> EndpointsSnapshot:
    endpoints = tuple(
        Endpoint(id=pod, host="fd00::7", port=9000, state=state, zone="z1", started_at=time.time() - 300)
        for pod, state in pods.items()
    )
    return EndpointsSnapshot(
        model=model, epoch=1_764_500_000_000, generation=generation, sent_at=time.time(), endpoints=endpoints
    )


class Publisher:
    """A discovery that says the same again and again, until it is told something else."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.snapshots: list[EndpointsSnapshot] = []

    def says(self, *snapshots: EndpointsSnapshot) -> None:
        self.snapshots = list(snapshots)
        self.repeat()

    def repeat(self) -> None:
        for each in self.snapshots:
            self.bus.publish(endpoints_subject(each.model), each)

    async def keep_on(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            self.repeat()


@pytest.fixture
async def publisher(nats_server: NatsServer) -> AsyncIterator[Publisher]:
    bus = await Bus.connect(nats_server.url, name="eds")
    assert await bus.wait_connected(5)
    publisher = Publisher(bus)
    task = asyncio.create_task(publisher.keep_on())
    yield publisher
    task.cancel()
    await bus.close()


@asynccontextmanager
async def inspecting(*arguments: str, **environ: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "copydesk.cli", "eds", "inspect", *arguments),
        env={**os.environ, "COLUMNS": "200", "XDG_STATE_HOME": "/nonexistent", **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # A shell starts what it runs in the background with SIGINT ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def inspect(*arguments: str, **environ: str) -> tuple[int | None, str, str]:
    async with inspecting(*arguments, **environ) as process, asyncio.timeout(30):
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


async def test_what_is_published_is_shown_as_a_table(publisher: Publisher, nats_server: NatsServer) -> None:
    publisher.says(snapshot("gec-en", 3, a=READY, b=DRAINING), snapshot("empty", 1))
    code, out, err = await inspect("--nats-url", nats_server.url, "--wait", "1")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert lines[0][:3] == ["empty", "no", "endpoint"]
    assert " ".join(lines[1]).startswith(
        "gec-en 1 ready, 1 draining epoch 2025-11-30 10:53:20Z, generation 3, said"
    )
    assert lines[2] == ["endpoint", "address", "state", "zone", "age"]
    assert lines[3] == ["a", "[fd00::7]:9000", "ready", "z1", "5", "min"]
    assert lines[4][:3] == ["b", "[fd00::7]:9000", "draining"]


async def test_one_model_is_shown_as_soon_as_it_is_heard(publisher: Publisher, nats_server: NatsServer) -> None:
    publisher.says(snapshot("gec-en", 3, a=READY), snapshot("other", 1, b=READY))
    code, out, _ = await inspect(
        "--model", "other", "--json", "--wait", "600", COPYDESK_EDS_NATS_URL=nats_server.url
    )
    found = json.loads(out)
    assert code == 0
    assert [(m["model"], [e["id"] for e in m["endpoints"]]) for m in found["models"]] == [("other", ["b"])]
    assert found["models"][0]["counts"] == {"ready": 1, "warming": 0, "draining": 0}
    assert found["models"][0]["endpoints"][0]["age_s"] >= 300


async def lines_of(stream: asyncio.StreamReader | None, count: int) -> Sequence[dict[str, Any]]:
    assert stream is not None
    async with asyncio.timeout(30):
        return [json.loads(await stream.readline()) for _ in range(count)]


async def test_watching_writes_a_line_a_change_and_none_for_what_is_repeated(
    publisher: Publisher, nats_server: NatsServer
) -> None:
    publisher.says(snapshot("gec-en", 1, a=READY))
    async with inspecting("--nats-url", nats_server.url, "--watch", "--json") as process:
        first = await lines_of(process.stdout, 1)
        publisher.says(snapshot("gec-en", 2, a=READY, b=READY))
        second = await lines_of(process.stdout, 1)
        publisher.says(snapshot("gec-en", 3, b=READY))
        third = await lines_of(process.stdout, 1)
        process.send_signal(signal.SIGINT)
        rest, _ = await process.communicate()
    assert [line["generation"] for line in (*first, *second, *third)] == [1, 2, 3]
    assert [[e["id"] for e in line["endpoints"]] for line in (*second, *third)] == [["a", "b"], ["b"]]
    assert rest == b""
    assert process.returncode == 130


async def test_watching_without_a_terminal_writes_each_table_below_the_last(
    publisher: Publisher, nats_server: NatsServer
) -> None:
    publisher.says(snapshot("gec-en", 1, a=READY))
    async with inspecting("--nats-url", nats_server.url, "--watch", PYTHONUNBUFFERED="1") as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            while b"generation 1" not in await process.stdout.readline():
                pass
            publisher.says(snapshot("gec-en", 2, a=DRAINING))
            while b"generation 2" not in await process.stdout.readline():
                pass


async def test_without_nats_it_says_so_and_what_to_change() -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    code, out, err = await inspect("--nats-url", url)
    assert (code, out) == (2, "")
    assert f"NATS at {url} is not reachable (Connection refused)" in err
    assert "--nats-url or COPYDESK_EDS_NATS_URL" in err


async def refusal(origin: Origin) -> str:
    try:
        with pytest.raises(OriginError) as caught:
            await origin.start(lambda _: None)
        return str(caught.value)
    finally:
        await origin.close()


@pytest.mark.parametrize(
    ("greeting", "token", "complaint"),
    [
        (b'INFO {"auth_required":true}\r\n', "", "asks for a token; set COPYDESK_EDS_NATS_TOKEN"),
        (b'INFO {"auth_required":true}\r\n', "x", "does not accept this token"),
        (b"220 mail.example ESMTP\r\n", "", "is no NATS server"),
        (b"INFO nonsense\r\n", "", "is no NATS server"),
        (b"x" * 100_000, "", "is no NATS server"),
    ],
)
async def test_a_server_that_does_not_let_it_in_is_explained(greeting: bytes, token: str, complaint: str) -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting + b"-ERR 'Authorization Violation'\r\n")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert complaint in await refusal(NatsOrigin(f"nats://127.0.0.1:{port}", token, ()))
    server.close()


async def test_where_nobody_publishes_it_says_that_nothing_was_heard(
    publisher: Publisher, nats_server: NatsServer
) -> None:
    code, _, err = await inspect("--nats-url", nats_server.url, "--wait", "0.2")
    assert code == 1
    assert "nothing was heard within 0.2 s" in err
    publisher.says(snapshot("gec-en", 1, a=READY))
    code, _, err = await inspect("--nats-url", nats_server.url, "--wait", "0.5", "--model", "gec-de")
    assert code == 1
    assert "nothing was heard" in err


async def test_what_a_replica_holds_back_is_marked(publisher: Publisher, nats_server: NatsServer) -> None:
    pod = "gec-en-7f9c6b5d4c-abcde"
    published = snapshot("gec-en", 4, **{"a": READY, pod: READY})
    publisher.says(published)
    held = (HeldView(id=pod, seconds=12.0, limit_seconds=60.0),)
    view = ReplicaView(
        settled=True,
        stale=False,
        leader=True,
        epoch=published.epoch,
        bus_connected=True,
        event_age_s=0.0,
        models=(ModelView(snapshot=published, held=held),),
    )
    server = StatusServer("127.0.0.1", 0, {"/endpoints": lambda: Answer(msgspec.json.encode(view))})
    await server.start()
    known = ("--nats-url", nats_server.url, "--model", "gec-en", "--service", f"http://127.0.0.1:{server.port}")
    code, out, _ = await inspect(*known)
    assert code == 0
    assert "2 ready, 1 of them held back" in out
    (line,) = [line for line in out.splitlines() if pod in line]
    assert "…" not in line  # on a terminal of 80 columns
    assert re.search(r" ready +12\.0 s of 60\.0 s", line)
    await server.close()
    code, _, err = await inspect(*known)
    assert code == 2
    assert "does not answer" in err
    assert "COPYDESK_EDS_METRICS_PORT" in err


async def test_a_file_is_shown_as_discovery_would_read_it(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("gec-en: [{host: 10.0.0.7, port: 9000, protocol: openai, capacity: 64}]\nother: []\n")
    code, out, _ = await inspect("--source", "static", "--file", str(path))
    assert code == 0
    assert ["10.0.0.7-9000", "10.0.0.7:9000", "ready", "openai", "64"] in [
        line.split() for line in out.splitlines()
    ]
    code, out, err = await inspect("--source", "static", "--file", str(path), "--model", "x", "--wait", "0.2")
    assert code == 1
    assert "known are gec-en, other" in err


async def test_kubernetes_is_asked_as_discovery_would_ask_it(tmp_path: Path) -> None:
    known = ("--source", "kubernetes", "--json")
    with part("bench.eds.api_server", 2, 6, directory=tmp_path) as server:
        config = str(kube_config(tmp_path, int(await asyncio.to_thread(server.read))))
        code, out, err = await inspect(*known, "--model", "model-01", COPYDESK_EDS_KUBE_CONFIG=config)
        assert (code, err) == (0, "")
        (model,) = json.loads(out)["models"]
        assert [(e["id"], e["node"], e["state"]) for e in model["endpoints"]] == [
            (f"pod-01-00{number}", f"node-0{number}", "ready") for number in range(3)
        ]
    code, _, err = await inspect(*known, "--wait", "1", COPYDESK_EDS_KUBE_CONFIG=config)
    assert code == 2
    assert "kubernetes cannot be heard" in err
    assert "endpointslices: unreachable" in err
    assert "COPYDESK_EDS_KUBE_" in err


async def test_a_mistake_is_named(tmp_path: Path) -> None:
    code, out, err = await inspect("--model", "a.b")
    assert (code, out) == (2, "")
    assert "--model: 'a.b' is no valid name" in err
    code, out, err = await inspect("--file", "pods.yaml")
    assert (code, out) == (2, "")
    assert "--file is not for the source nats; add --source static" in err
    assert "is no NATS url" in await refusal(NatsOrigin("http://x", "", ()))
    with pytest.raises(OriginError, match="the static source needs a file; give a good file by --file"):
        SourceOrigin("static", None)
    path = tmp_path / "pods.yaml"
    assert f"{path}: cannot be read" in await refusal(SourceOrigin("static", path))
    path.write_text("gec-en: nonsense\n")
    assert "line 1: expected a list of endpoints" in await refusal(SourceOrigin("static", path))


def test_the_server_is_the_one_named_the_environments_or_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    environ = {"COPYDESK_EDS_NATS_URL": "nats://b", "COPYDESK_EDS_NATS_TOKEN": "secret"}
    assert find_nats("nats://a", environ) == ("nats://a", "secret")
    assert find_nats(None, environ) == ("nats://b", "secret")
    assert find_nats(None, {}) == ("nats://127.0.0.1:4222", "")


async def test_a_fleet_that_runs_here_is_found_with_its_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    discovery = await asyncio.create_subprocess_exec(
        *("sleep", "60"), env={**os.environ, "COPYDESK_EDS_NATS_TOKEN": "of-the-fleet"}
    )
    directory = default_state_dir(8080)
    directory.mkdir(parents=True)
    now = time.time()
    eds = ProcessState(name="eds", role="eds", pid=discovery.pid, started=now, restarts=0)
    write_state(
        FleetState(
            pid=os.getpid(),
            started=now,
            url="http://127.0.0.1:8080",
            nats_url="nats://127.0.0.1:4999",
            model="m",
            model_dir="/m",
            state_dir=str(directory),
            logs=str(directory),
            pods=(),
            processes=(eds,),
        )
    )
    try:
        assert find_nats(None, {}) == ("nats://127.0.0.1:4999", "of-the-fleet")
        assert find_nats("nats://127.0.0.1:4999", {}) == ("nats://127.0.0.1:4999", "of-the-fleet")
        assert find_nats("nats://elsewhere", {}) == ("nats://elsewhere", "")
        assert find_nats(None, {"COPYDESK_NATS_TOKEN": "told"})[1] == "told"
    finally:
        discovery.kill()
        await discovery.wait()
