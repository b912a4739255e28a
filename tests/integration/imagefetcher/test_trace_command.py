"""`copydesk image trace` with a real registry, the kernel's EROFS and runc."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from copydesk.cli.main import app
from copydesk.imagefetcher.device.mounts import mounted
from copydesk.imagefetcher.trace import Trace, decode_trace
from copydesk.imagefetcher.tracing import launch
from copydesk.imagefetcher.tracing.bundle import runtime_spec
from copydesk.imagefetcher.tracing.process import Process
from tests.fixtures.docker_registry import DockerRegistry, registry_binary, required_program, running
from tests.fixtures.nats import free_port
from tests.fixtures.oci_image import build, directory, file, layer, push

BLOCK = 4096
LARGE = random.Random(4).randbytes(4 << 20)
TOOL = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
static void serve(int port) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (bind(listener, (sockaddr*)&address, sizeof address) || listen(listener, 8)) exit(9);
  for (;;) {
    int client = accept(listener, nullptr, nullptr);
    char request[4096];
    if (read(client, request, sizeof request) > 0) dprintf(client, "HTTP/1.1 204 No Content\r\n\r\n");
    close(client);
  }
}
int main(int count, char** word) {
  static char buffer[1 << 20];
  for (int at = 1; at < count; ++at) {
    if (!strcmp(word[at], "read")) {
      int file = open(word[at + 1], O_RDONLY);
      if (file < 0 || pread(file, buffer, atol(word[at + 3]), atol(word[at + 2])) < 0) return 4;
      at += 3;
    } else if (!strcmp(word[at], "touch")) {
      int file = open(word[at + 1], O_RDONLY);
      char* memory = (char*)mmap(nullptr, 4 << 20, PROT_READ, MAP_PRIVATE, file, 0);
      if (memory == MAP_FAILED) return 5;
      buffer[0] = ((volatile char*)memory)[atol(word[at + 2])];
      at += 2;
    } else if (!strcmp(word[at], "write")) {
      int file = open(word[++at], O_WRONLY | O_CREAT, 0600);
      if (file < 0 || write(file, "x", 1) != 1) return 6;
    } else if (!strcmp(word[at], "say")) {
      puts(word[++at]);
      fflush(stdout);
    } else if (!strcmp(word[at], "variable")) {
      puts(getenv(word[++at]) ? getenv(word[at]) : "none");
    } else if (!strcmp(word[at], "serve")) {
      serve(atoi(word[++at]));
    } else if (!strcmp(word[at], "exit")) {
      return atoi(word[++at]);
    } else if (!strcmp(word[at], "wait")) {
      pause();
    }
  }
}
"""


@pytest.fixture(scope="module")
def needs_root() -> None:
    reason = None
    if os.geteuid() != 0:
        reason = "running an image needs root"
    elif shutil.which("g++") is None:
        reason = "there is no g++"
    if reason is not None:
        if os.environ.get("COPYDESK_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    required_program("runc", "runc")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerRegistry]:
    yield from running(DockerRegistry(registry_binary(), tmp_path_factory.mktemp("trace") / "registry"))


@pytest.fixture(scope="module")
def image(needs_root: None, registry: DockerRegistry, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image of one program that needs no libraries, and a large file."""
    folder = tmp_path_factory.mktemp("tool")
    (folder / "tool.cpp").write_text(TOOL)
    command = ["g++", "-static", "-Os", "-s", "-o", "tool", "tool.cpp"]
    subprocess.run(command, check=True, cwd=folder)
    archive = layer(
        *(directory(name) for name in ("bin", "data", "etc", "proc", "sys", "dev", "tmp")),
        file("bin/tool", (folder / "tool").read_bytes(), mode=0o755),
        file("data/large", LARGE),
        file("etc/passwd", b"root:x:0:0::/root:/bin/sh\nguest:x:77:78::/:/bin/sh\n"),
    )
    own = ["say", "started", "read", "/data/large", "0", str(BLOCK)]
    push(registry.host, "app", "v1", build([archive], Entrypoint=["tool"], Cmd=own, Env=["GREETING=hello"]))
    return registry.reference("app:v1")


@dataclass
class Traced:
    code: int
    out: str
    error: str
    trace: Trace | None

    @property
    def report(self) -> dict[str, Any]:
        """What `--json` printed."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    def ranges(self, path: str) -> list[tuple[int, int]]:
        """What was read of a file."""
        assert self.trace is not None, self.error
        return [(read.offset, read.length) for read in self.trace.reads if read.path == path]


@pytest.fixture
def record(image: str, tmp_path: Path) -> Iterator[Any]:
    """Run the command; nothing of what it mounts may be left."""

    def run(*arguments: str) -> Traced:
        out = tmp_path / "app.json"
        out.unlink(missing_ok=True)
        command = [
            "image",
            "trace",
            image,
            "--plain-http",
            "--json",
            "--out",
            str(out),
            "--work-dir",
            str(tmp_path),
        ]
        done = CliRunner().invoke(app, [*command, *arguments])
        trace = decode_trace(out.read_bytes()) if out.exists() else None
        return Traced(done.exit_code, done.stdout, done.stderr, trace)

    yield run
    assert not [mount for mount in mounted() if mount.target.startswith(str(tmp_path))]
    assert not list(tmp_path.glob("copydesk-trace-*"))


def test_an_exact_trace_names_what_the_program_reads_and_what_it_touches_in_memory(record: Any) -> None:
    steps = ["read", "/data/large", str(1 << 20), str(2 * BLOCK), "touch", "/data/large", str(3 << 20)]
    traced = record("--exact", "--", "/bin/tool", *steps)
    assert traced.code == 0, traced.error
    assert traced.ranges("data/large") == [(1 << 20, 2 * BLOCK), (3 << 20, BLOCK)]
    assert traced.report["isolation"] == "runc"
    assert (traced.report["ending"], traced.report["exit_code"]) == ("exit", 0)
    assert traced.report["bytes_read"] >= 3 * BLOCK


def test_a_trace_holds_what_a_node_will_be_asked_for_in_the_same_order_every_time(record: Any) -> None:
    steps = ["--", "/bin/tool", "touch", "/data/large", str(2 << 20), "read", "/data/large", "0", "10"]
    first, second = record(*steps), record(*steps)
    ahead, start = first.ranges("data/large")
    assert ahead[0] < 2 << 20 < (2 << 20) + BLOCK < sum(ahead)
    assert start[0] == 0
    named = [[(read.path, read.offset, read.length) for read in traced.trace.reads] for traced in (first, second)]
    assert named[0] == named[1]
    times = [read.at for read in first.trace.reads]
    assert times == sorted(times)


def test_without_a_command_the_images_own_is_run_and_a_conversion_puts_it_first(
    record: Any, image: str, tmp_path: Path
) -> None:
    traced = record()
    assert traced.trace.command == ("tool", "say", "started", "read", "/data/large", "0", "4096")
    assert traced.ranges("bin/tool")[0][0] == 0
    assert traced.ranges("data/large")[0][0] == 0
    done = CliRunner().invoke(
        app, ["image", "convert", image, "--plain-http", "--json", "--trace", str(tmp_path / "app.json")]
    )
    assert done.exit_code == 0, done.stderr
    (converted,) = json.loads(done.stdout)["platforms"]
    assert converted["prefetch"] == 1
    assert converted["hot_size"] == traced.report["bytes_read"]
    assert CliRunner().invoke(app, ["image", "verify", image, "--plain-http"]).exit_code == 0


def test_a_program_may_write_and_has_the_variables_it_is_given(
    record: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    traced = record(
        *("--env", "EXTRA=given", "--"),
        *("tool", "write", "/data/large", "write", "/new", "variable", "GREETING", "variable", "EXTRA"),
    )
    assert (traced.code, traced.report["exit_code"]) == (0, 0)
    said = capfd.readouterr().err + traced.error
    assert "hello\ngiven\n" in said


def test_a_command_that_fails_leaves_a_trace_and_a_warning(record: Any) -> None:
    traced = record("--", "tool", "read", "/data/large", "0", "10", "exit", "7")
    assert (traced.code, traced.report["exit_code"]) == (0, 7)
    assert "failed with exit code 7" in traced.error
    assert traced.ranges("data/large")


def test_a_recording_ends_with_the_first_output_though_the_program_goes_on(record: Any) -> None:
    steps = ["say", "ready", "wait"]
    traced = record("--until-output", "--", "tool", *steps)
    assert (traced.report["ending"], traced.report["exit_code"]) == ("output", None)


def test_a_recording_ends_when_the_program_answers(record: Any) -> None:
    port = free_port()
    traced = record("--ready-url", f"http://127.0.0.1:{port}/readyz", "--", "tool", "serve", str(port))
    assert traced.report["ending"] == "ready"
    assert traced.report["warnings"] == []


def test_a_recording_ends_when_time_is_up_and_says_what_did_not_come(record: Any) -> None:
    traced = record("--seconds", "0.3", "--until-output", "--", "tool", "wait")
    assert (traced.code, traced.report["ending"]) == (0, "seconds")
    assert "there was no output yet" in traced.error


def test_an_interrupt_ends_the_recording_and_keeps_the_trace(image: str, tmp_path: Path) -> None:
    out, work = tmp_path / "app.json", tmp_path / "work"
    work.mkdir()
    options = ["--plain-http", "--out", str(out), "--work-dir", str(work), "--", "tool", "say", "up", "wait"]
    command = [sys.executable, "-m", "copydesk.cli", "image", "trace", image, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while process.stderr.readline() != "up\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "until interrupted" in said
    assert decode_trace(out.read_bytes()).reads
    assert not list(work.iterdir())


@pytest.mark.parametrize("command", ["absent", "/data/large"])
def test_a_command_that_is_not_there_is_bad_input(record: Any, command: str) -> None:
    traced = record("--", command)
    assert (traced.code, traced.trace) == (2, None)
    assert command in traced.error


def test_who_is_not_root_is_told_so(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    traced = record()
    assert (traced.code, traced.trace) == (2, None)
    assert "needs root" in traced.error


def test_without_runc_namespaces_do_and_with_neither_it_is_refused(
    record: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "runc" else which(name))
    traced = record("--exact", "--", "tool", "read", "/data/large", "8192", "10", "read", "/dev/zero", "0", "9")
    assert (traced.code, traced.report["exit_code"]) == (0, 0), traced.error
    assert traced.report["isolation"] == "namespaces"
    assert "there is no runc" in traced.error
    assert traced.ranges("data/large") == [(8192, BLOCK)]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert record().code == 2


def test_a_container_that_cannot_be_started_is_an_error(record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"destination": "/x", "type": "bind", "source": "/nowhere", "options": ["bind"]}
    spec = runtime_spec(Process(("tool",), {}), "/root")
    monkeypatch.setattr(launch, "runtime_spec", lambda *_: {**spec, "mounts": [*spec["mounts"], nowhere]})
    traced = record("--until-output")
    assert (traced.code, traced.trace) == (1, None)
    assert "runc cannot start the container" in traced.error
