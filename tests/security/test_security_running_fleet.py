"""A whole local fleet, as it is by default but for keys and the least severe logs: what it shows, and to whom.

Right and wrong requests are made with secrets and with a text that occur nowhere else. Then all that the fleet
wrote and answered is searched for them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import stat
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pytest

from copydesk.common.rpc import Channel, RpcConnectError, RpcHandshakeError, TcpAddress
from copydesk.common.tasks import CorrectSentence
from tests.fixtures.fleet import Fleet, running_fleet
from tests.fixtures.image_daemon import wait_until
from tests.fixtures.nats import free_port
from tests.fixtures.tiny_model import write_tiny_model

KEY = "key-of-the-editor-5f1c0b"
WRONG_KEY = "key-of-a-stranger-77aa1e"
NATS_TOKEN = "token-of-nats-91d2c4"
WRONG_TOKEN = "token-of-a-stranger-3e3e0d"
WORD = "Quokkazephyr"
TEXT = f"{WORD} go home yesterday."
PORTS = ("EDS", "AUTOSCALER", "INFERENCE")


class Watched:
    """The fleet, the ports of its metrics, and every answer that it gave."""

    def __init__(self, fleet: Fleet, metrics: dict[str, int], model: str) -> None:
        self.fleet = fleet
        self.metrics = metrics
        self.model = model
        self.answers: list[httpx.Response] = []

    def processes(self) -> list[psutil.Process]:
        """The command and all that it has started."""
        whole = psutil.Process(self.fleet.process.pid)
        return [whole, *whole.children(recursive=True)]

    def listening(self) -> set[tuple[str, int]]:
        """Where any of them takes connections."""
        return {
            (where.laddr.ip, where.laddr.port)
            for process in self.processes()
            for where in process.net_connections("inet")
            if where.status == psutil.CONN_LISTEN
        }

    def ask(self, method: str, path: str, *, key: str | None = KEY, **request: Any) -> httpx.Response:
        """Ask the gateway, and keep the answer."""
        headers = ({"Authorization": f"Bearer {key}"} if key else {}) | request.pop("headers", {})
        answer = httpx.request(method, self.fleet.url + path, headers=headers, timeout=60, **request)
        self.answers.append(answer)
        return answer

    def environ(self, service: str) -> dict[str, str]:
        """What one of the processes was started with."""
        return psutil.Process(self.fleet.pid(service)).environ()

    def pod(self) -> TcpAddress:
        """Where a pod is, as the gateway tells those with a key."""
        (pod,) = self.ask("GET", "/v1/fleet").json()["pods"]
        host, _, port = str(pod["address"]).rpartition(":") if "address" in pod else (pod["host"], "", pod["port"])
        return TcpAddress(host, int(port))

    def written(self) -> dict[str, str]:
        """All that the fleet has written and told, by where."""
        state = self.fleet.directory / "state"
        found = {str(path): path.read_text(errors="replace") for path in sorted((state / "logs").iterdir())}
        found["stderr of up"] = (self.fleet.directory / "up.stderr").read_text(errors="replace")
        found["events of up"] = "\n".join(map(json.dumps, self.fleet.events))
        found["command lines"] = "\n".join(" ".join(process.cmdline()) for process in self.processes())
        for service, port in self.metrics.items():
            found[f"metrics of {service}"] = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
        for path in ("/metrics", "/v1/fleet", "/v1/fleet/history"):
            found[path] = self.ask("GET", path).text
        return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "keys.txt").write_text(f"editor:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    model = write_tiny_model(folder / "tiny", always_stops=True)
    metrics = {service: free_port() for service in PORTS}
    environ = {f"COPYDESK_{service}_METRICS_PORT": str(port) for service, port in metrics.items()}
    environ |= {f"COPYDESK_{service}_LOG_LEVEL": "debug" for service in (*PORTS, "GATEWAY")}
    environ |= {"COPYDESK_GATEWAY_API_KEYS_FILE": str(folder / "keys.txt"), "COPYDESK_API_KEY": KEY}
    environ |= {"COPYDESK_NATS_TOKEN": NATS_TOKEN}
    arguments = ("--model", str(model), "--autoscale", "1:1")
    with running_fleet(folder / "fleet", *arguments, environ=environ) as fleet:
        watched = Watched(fleet, metrics, "tiny")
        expected = {fleet.port, *metrics.values()}
        wait_until(lambda: {port for _, port in watched.listening()} >= expected, 60)
        yield watched


def test_nothing_listens_but_on_loopback(watched: Watched) -> None:
    assert {ip for ip, _ in watched.listening()} <= {"127.0.0.1", "::1"}, watched.listening()


@pytest.mark.parametrize("path", ["/v1/fleet", "/v1/fleet/history", "/metrics", "/v1/models", "/v1/models/tiny"])
def test_the_fleet_is_told_to_nobody_without_a_key(watched: Watched, path: str) -> None:
    assert watched.ask("GET", path, key=None).status_code == 401
    assert watched.ask("GET", path, key=WRONG_KEY).status_code == 401
    assert watched.ask("GET", path).status_code == 200


def test_the_page_of_the_fleet_tells_nothing_by_itself(watched: Watched) -> None:
    page = watched.ask("GET", "/fleet", key=None)
    assert page.status_code == 200
    assert page.text == files("copydesk.gateway").joinpath("page/fleet.html").read_text()


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../settings.py",
        "/assets/..%2fsettings.py",
        "/assets/%2e%2e/settings.py",
        "/assets/%2e%2e%2f%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/assets/..%5csettings.py",
        "/assets/....//settings.py",
        "/assets//etc/passwd",
        "/assets/%2fetc%2fpasswd",
        "/assets/page.css%00.py",
        "/assets/page.css/../../settings.py",
        "/assets/",
        "/../../../../etc/passwd",
        "//etc/passwd",
        "/v1/models/../../../../etc/passwd",
        "/v1/models/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/models/%2e%2e",
        "/v1/models//etc/passwd",
        "/v1/models/tiny%2f..%2f..%2fkeys.txt",
    ],
)
def test_no_path_leads_to_a_file(watched: Watched, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", watched.fleet.port), timeout=60) as client:
        client.sendall(head.encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.split(b" ", 2)[1] == b"404", answer
    assert b'"code":"' in answer
    assert b"root:" not in answer
    assert b"import" not in answer


async def test_a_pod_answers_nobody_without_the_token(watched: Watched) -> None:
    where = watched.pod()
    payload = msgspec.msgpack.encode(CorrectSentence(TEXT))
    for token in ("", WRONG_TOKEN):
        with pytest.raises((RpcHandshakeError, RpcConnectError)):
            await Channel.open(where, name="stranger", token=token, timeout=10)
    token = watched.environ("gateway")["COPYDESK_GATEWAY_RPC_TOKEN"]
    channel = await Channel.open(where, name="friend", token=token, timeout=10)
    assert (await channel.call(payload, deadline_ms=30_000)).fault is None
    await channel.close()


def _strange_pods(watched: Watched) -> None:
    """Talk to NATS with a wrong token, and to the gateway in no protocol."""
    nats_url = json.loads((watched.fleet.directory / "state" / "fleet.json").read_text())["nats_url"]
    connect = json.dumps({"verbose": False, "auth_token": WRONG_TOKEN})
    for port, sent in (
        (int(nats_url.rpartition(":")[2]), f"CONNECT {connect}\r\nPING\r\n"),
        (watched.fleet.port, f"POST {TEXT} HTTP/1.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: x\r\n\r\n"),
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
            stranger.sendall(sent.encode())
            while stranger.recv(4096):
                pass


def _right_and_wrong_requests(watched: Watched) -> None:
    completion = {"model": watched.model, "prompt": TEXT, "max_tokens": 4}
    assert watched.ask("POST", "/v1/correct", json={"text": TEXT}).status_code == 200
    assert watched.ask("POST", "/v1/completions", json=completion).status_code == 200
    form = {"text": TEXT, "language": "en-US", "apiKey": KEY, "username": "editor"}
    assert watched.ask("POST", "/v2/check", key=None, data=form).status_code == 200
    refused = [
        watched.ask("GET", "/v2/check", key=None, params=form | {"apiKey": WRONG_KEY}),
        watched.ask("GET", "/v2/check", params={"text": TEXT, "language": "xx"}),
        watched.ask("POST", "/v1/correct", key=WRONG_KEY, json={"text": TEXT}),
        watched.ask("POST", "/v1/correct", content=f'{{"text": "{TEXT}'),
        watched.ask(
            "POST", "/v1/correct", content=f'{{"text": "{TEXT}', headers={"Content-Type": "application/json"}
        ),
        watched.ask("POST", "/v1/correct", json={"text": [TEXT]}),
        watched.ask("POST", "/v1/correct", json={"text": TEXT * 20_000}),
        watched.ask("POST", "/v1/completions", json=completion | {"max_tokens": -1}),
        watched.ask(
            "POST",
            "/v1/chat/completions",
            json={"model": "x", "messages": [{"role": "narrator", "content": TEXT}]},
        ),
        watched.ask("GET", "/nowhere", params={"text": TEXT, "apiKey": KEY}),
    ]
    assert all(400 <= answer.status_code < 500 for answer in refused), [answer.text[:200] for answer in refused]


def test_neither_secrets_nor_texts_are_written_or_told(watched: Watched) -> None:
    secrets = {
        "the API key": KEY,
        "a wrong API key": WRONG_KEY,
        "NATS' token": NATS_TOKEN,
        "a wrong token": WRONG_TOKEN,
        "the pods' token": watched.environ("gateway")["COPYDESK_GATEWAY_RPC_TOKEN"],
    }
    _right_and_wrong_requests(watched)
    asyncio.run(_ask_the_pod_for_nonsense(watched, secrets["the pods' token"]))
    _strange_pods(watched)
    written = watched.written()
    refused = [answer for answer in watched.answers if answer.status_code >= 400]
    told = {f"{answer.status_code} of {answer.url.path}": answer.text + str(answer.headers) for answer in refused}
    logs = "\n".join(what for where, what in written.items() if where.endswith(".log"))
    for trace in ('"http_refused"', '"wrong token"', "authentication error"):  # what was tried is in there
        assert trace in logs
    for where, what in (written | told).items():
        shown = [name for name, secret in secrets.items() if secret in what]
        assert not shown, f"{shown} in {where}"
        assert WORD not in what, f"the text in {where}"


async def _ask_the_pod_for_nonsense(watched: Watched, token: str) -> None:
    channel = await Channel.open(watched.pod(), name="friend", token=token, timeout=10)
    nonsense = await channel.call(msgspec.msgpack.encode({"nonsense": TEXT}), deadline_ms=10_000)
    assert nonsense.fault is not None
    assert WORD not in str(nonsense.fault)
    await channel.close()


def test_what_holds_a_secret_is_read_by_its_user_alone(watched: Watched) -> None:
    state = watched.fleet.directory / "state"
    for path in (state, state / "logs", state / "fleet.json"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    holding = [path for path in _files(state) if NATS_TOKEN in path.read_text(errors="replace")]
    assert {path.name for path in holding} <= {"fleet.json"}


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.rglob("*") if path.is_file())
