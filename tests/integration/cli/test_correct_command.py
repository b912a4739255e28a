"""`copydesk correct` and `copydesk status` as processes, against a small server that speaks the API."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

FLEET = {
    "model": "gec-en",
    "model_digest": "sha256:0123456789abcdef",
    "discovery_connected": True,
    "pods": [
        {
            "id": "pod-1",
            "address": "127.0.0.1:31000",
            "zone": "",
            "state": "ready",
            "connected": True,
            "eligible": True,
            "in_flight": 3,
            "running": 2,
            "queued": None,
            "capacity": 32,
            "ewma_ms": 41.7,
            "requests": 1234,
            "errors": 5,
        }
    ],
    "totals": {},
}


class Handler(BaseHTTPRequestHandler):
    """Turns `go` into `goes`; refuses NUL; is busy once for a text that says so."""

    server: Api

    def do_GET(self) -> None:
        self._answer(200, FLEET)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        text = json.loads(body)["text"]
        assert self.headers["Content-Type"] == "application/json"
        first = text not in self.server.texts
        self.server.texts.append(text)
        if self.path != "/v1/correct":
            self._refuse(404, "not_found", f"There is nothing at {self.path!r}.")
        elif "\0" in text:
            self._refuse(400, "invalid_text", "The text has a NUL character.")
        elif "busy" in text and first:
            self._refuse(429, "overloaded", "The fleet is at its capacity; retry later.")
        elif "closed" in text:
            self._refuse(502, "inference_failed", "The inference pod failed: closed.")
        else:
            self._answer(200, corrected(text))

    def _refuse(self, status: int, code: str, message: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": "text", "code": code}
        self._answer(status, {"error": error})

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Retry-After", "0.01")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Api(ThreadingHTTPServer):
    """Remembers the texts that it was sent."""

    texts: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


def corrected(text: str) -> dict[str, object]:
    edits = []
    at = text.find(" go ")
    while at >= 0:
        edits.append({"start": at + 1, "end": at + 3, "replacement": "goes"})
        at = text.find(" go ", at + 1)
    return {"corrected": text.replace(" go ", " goes "), "edits": edits, "skipped": [], "model": "gec-en"}


@contextmanager
def serving(handler: type[Handler]) -> Iterator[Api]:
    server = Api(("127.0.0.1", 0), handler)
    server.texts = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(Handler) as server:
        yield server


def copydesk(*arguments: str | bytes, stdin: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "copydesk.cli", *arguments]
    return subprocess.run(
        argv, input=stdin, capture_output=True, env={**os.environ, **environ}, timeout=60, check=False
    )


def test_each_argument_comes_back_on_a_line(api: Api) -> None:
    done = copydesk("correct", "She go home.", "Nothing wrong.", "--url", api.url)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"She goes home.\nNothing wrong.\n"


@pytest.mark.parametrize(
    "text",
    [
        b"She go home.",
        b"\n\n She go home.\r\n\r\n\tHe go too. \n",
        b"",
        b" \n\t\n",
        "é \U0001f600 go \u2028 x".encode(),
    ],
)
def test_standard_input_keeps_every_other_byte(api: Api, text: bytes) -> None:
    done = copydesk("correct", "--url", api.url, stdin=text)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == text.replace(b" go ", b" goes ")


def test_a_long_text_goes_out_in_parts_and_comes_back_in_order(api: Api) -> None:
    lines = [f"Line {number}: they go {'far ' * (number % 40)}away.\n" for number in range(3000)]
    text = "".join(lines)
    done = copydesk("correct", "--url", api.url, stdin=text.encode())
    assert done.stdout.decode() == text.replace(" go ", " goes ")
    assert len(api.texts) > 20
    assert max(map(len, api.texts)) <= 4000
    assert all(part.endswith("\n") for part in api.texts)


def test_json_of_standard_input_tells_where_each_part_begins(api: Api) -> None:
    text = "They go on and on.\n" * 500
    done = copydesk("correct", "--json", "--url", api.url, stdin=text.encode())
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > 1
    for row in rows:
        assert text[row["offset"] : row["offset"] + len(row["text"])] == row["text"]
        assert row["corrected"] == row["text"].replace(" go ", " goes ")
        assert row["edits"][0]["replacement"] == "goes"
    assert "".join(row["text"] for row in rows) == text


def test_diff_shows_the_edits_in_the_text(api: Api) -> None:
    done = copydesk("correct", "--diff", "She go home.", "--url", api.url)
    assert done.stdout == b"She [-go-]{+goes+} home.\n"


def test_a_busy_fleet_is_asked_again(api: Api) -> None:
    done = copydesk("correct", "They go, busy as they are. They go on.", "--url", api.url)
    assert done.returncode == 0
    assert len(api.texts) == 2


@pytest.mark.parametrize(
    ("stdin", "message"),
    [(b"a\0b", b"NUL character. (invalid_text)"), (b"caf\xe9 noir", b"not UTF-8 text: byte 3")],
)
def test_bad_input_is_told_in_one_line_and_exits_with_2(api: Api, stdin: bytes, message: bytes) -> None:
    done = copydesk("correct", "--url", api.url, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, b"")
    assert message in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_an_argument_that_is_not_utf8_is_bad_input(api: Api) -> None:
    done = copydesk("correct", b"caf\xe9", "--url", api.url)
    assert done.returncode == 2
    assert b"byte 3" in done.stderr


def test_a_fault_of_the_fleet_exits_with_1(api: Api) -> None:
    done = copydesk("correct", "closed", "--url", api.url)
    assert done.returncode == 1
    assert b"inference_failed" in done.stderr


def test_without_a_fleet_one_line_says_how_to_start_one(tmp_path: Path) -> None:
    done = copydesk("correct", "She go home.", "--url", "http://127.0.0.1:1", XDG_STATE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"copydesk up" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_an_interruption_does_not_wait_for_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        argv = [sys.executable, "-m", "copydesk.cli", "correct", "--url", url]
        with subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A shell starts what it runs in the background with SIGINT ignored, and that is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            assert process.stdin is not None
            process.stdin.write(b"She go home.\n" * 200)
            process.stdin.close()
            connection, _ = silent.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                # Far less than the command waits for an answer.
                assert process.wait(30) == 130


def test_what_is_no_gateway_is_told_as_that() -> None:
    class Foreign(Handler):
        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            self.send_error(501)

    with serving(Foreign) as server:
        for command in (("correct", "She go home."), ("status",)):
            done = copydesk(*command, "--url", server.url, COLUMNS="300")
            assert done.returncode == 1
            assert b"no Copydesk gateway" in done.stdout + done.stderr


def test_the_name_of_a_file_is_corrected_as_text_and_the_way_to_its_content_told(api: Api, tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.touch()
    done = copydesk("correct", str(letter), "--url", api.url)
    assert done.stdout.decode() == f"{letter}\n"
    assert f"copydesk correct < {letter}" in done.stderr.decode()


def test_an_argument_may_be_longer_than_any_path(api: Api) -> None:
    done = copydesk("correct", "They go on. " * 1000, "--url", api.url)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().startswith("They goes on. ")


def test_a_url_with_a_path_is_told_to_have_none(api: Api) -> None:
    done = copydesk("correct", "She go home.", "--url", f"{api.url}/foo")
    assert done.returncode == 2
    assert b"address alone" in done.stderr


def test_the_url_may_come_from_the_environment(api: Api) -> None:
    assert copydesk("correct", "She go home.", COPYDESK_URL=api.url).stdout == b"She goes home.\n"


def test_status_shows_the_pods(api: Api) -> None:
    done = copydesk("status", "--url", api.url, COLUMNS="200")
    assert done.returncode == 0
    row = next(line for line in done.stdout.decode().splitlines() if "pod-1" in line)
    assert row.split() == ["pod-1", "127.0.0.1:31000", "ready", "3", "2+-/32", "42", "1234", "5"]


def test_status_as_json_is_one_object(api: Api) -> None:
    view = json.loads(copydesk("status", "--json", "--url", api.url).stdout)
    assert (view["url"], view["problem"], view["pods"][0]["requests"]) == (api.url, None, 1234)


def test_status_without_a_fleet_says_so_and_exits_with_1(tmp_path: Path) -> None:
    done = copydesk("status", "--url", "http://127.0.0.1:1", XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 1
    assert b"no fleet answers" in done.stdout
