"""The fleet of compose.yaml, as `docker compose` runs it, under a project name and a port of the test's own."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
FILE = ROOT / "compose.yaml"
PATIENCE = 120.0

T = TypeVar("T")


def run(*command: str, env: Mapping[str, str], timeout: float = 900.0) -> str:
    """Run a command to its end and return what it printed; fail with all that it said."""
    ended = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT
    )
    assert ended.returncode == 0, f"{' '.join(command)}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def eventually(what: str, look: Callable[[], T | None], timeout: float = PATIENCE) -> T:
    """Look until something is seen; fail with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if seen := look():
            return seen
        time.sleep(0.2)
    raise AssertionError(f"not within {timeout:g} s: {what}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the gateway answered."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Traffic:
    """Requests that were made all the while, and those that were not answered as they should."""

    asked: int = 0
    failed: list[str] = field(default_factory=list)


class ComposedFleet:
    """`docker compose` with one project; `env` reaches the engine and says what the file leaves open."""

    def __init__(self, env: Mapping[str, str], project: str, port: int, secrets: Path) -> None:
        self.env = dict(env) | {"COPYDESK_PORT": str(port), "COPYDESK_SECRETS": str(secrets)}
        self.url = f"http://127.0.0.1:{port}"
        self._project = project
        self._secrets = secrets

    def compose(self, *arguments: str, timeout: float = 900.0) -> str:
        """Run `docker compose` and return what it printed."""
        command = ("docker", "compose", "--project-name", self._project, "--file", str(FILE), *arguments)
        return run(*command, env=self.env, timeout=timeout)

    def docker(self, *arguments: str) -> str:
        """Run `docker` and return what it printed."""
        return run("docker", *arguments, env=self.env)

    def up(self, pods: int = 2) -> None:
        """Start what does not run yet, and return once all of it is well."""
        scale = ("--scale", f"inference={pods}")
        self.compose("up", "--detach", "--no-build", "--no-recreate", "--wait", "--wait-timeout", "240", *scale)

    def containers(self, service: str) -> list[str]:
        """The ids of a service's containers."""
        return self.compose("ps", "--all", "--quiet", service).split()

    def inspect(self, container: str) -> dict[str, Any]:
        """What the engine knows of a container."""
        (found,) = json.loads(self.docker("inspect", container))
        assert isinstance(found, dict)
        return found

    def secret(self, name: str) -> str:
        """What stands in one of the secrets' files."""
        return (self._secrets / name).read_text()

    def ask(self, path: str, body: object = None, *, key: str | None = "gateway_api_key") -> Answer:
        """Send one request to the gateway; raises `OSError` if nobody answers."""
        request = urllib.request.Request(self.url + path)
        if key is not None:
            request.add_header("Authorization", f"Bearer {self.secret(key)}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=90) as response:
                return Answer(response.status, response.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.read())

    def correct(self, text: str) -> str:
        """Have a text corrected."""
        answer = self.ask("/v1/correct", {"text": text})
        assert answer.status == 200, answer.body
        return str(answer.json["corrected"])

    def ready_pods(self) -> list[str]:
        """The pods that the gateway sends work to."""
        pods = self.ask("/v1/fleet").json["pods"]
        return [pod["id"] for pod in pods if pod["state"] == "ready" and pod["eligible"]]

    def expect_pods(self, count: int) -> None:
        """Wait until so many are ready."""
        eventually(f"{count} pods ready", lambda: len(self.ready_pods()) == count)

    @contextmanager
    def under_requests(self, users: int = 3) -> Iterator[Traffic]:
        """Have so many users ask without a pause; the block begins when each has had an answer."""
        traffic = Traffic()
        over = threading.Event()
        lock = threading.Lock()

        def use(user: int) -> None:
            number = 0
            while not over.is_set():
                number += 1
                try:
                    answer = self.ask("/v1/correct", {"text": f"User {user} have {number} apple."})
                    failure = "" if answer.status == 200 else f"{answer.status} {answer.body!r}"
                except OSError as error:
                    failure = repr(error)
                with lock:
                    traffic.asked += 1
                    if failure:
                        traffic.failed.append(failure)

        threads = [threading.Thread(target=use, args=(user,)) for user in range(users)]
        for thread in threads:
            thread.start()
        try:
            eventually("the first answers", lambda: traffic.asked >= users)
            yield traffic
        finally:
            over.set()
            for thread in threads:
                thread.join()

    def more_answers(self, traffic: Traffic, count: int = 10) -> None:
        """Wait for so many more answers."""
        begun = traffic.asked
        eventually(f"{count} more answers", lambda: traffic.asked >= begun + count)
