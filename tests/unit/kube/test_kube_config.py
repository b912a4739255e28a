"""How to reach the API server: what is found, and what is said where nothing usable is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from copydesk.kube.api import Api, find_config
from copydesk.kube.trouble import KubernetesConfigError
from tests.fixtures.silent_server import silent_server

CLUSTER = {"server": "https://127.0.0.1:1"}


def write(path: Path, cluster: dict[str, Any] = CLUSTER, **changes: Any) -> Path:
    config = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "prod"}}],
    }
    path.write_text(json.dumps({**config, **changes}))
    return path


async def test_a_file_says_server_and_namespace(tmp_path: Path) -> None:
    config = find_config(write(tmp_path / "config"))
    assert config.cluster.server == "https://127.0.0.1:1"
    api = Api(config)
    assert api.namespace == "prod"
    await api.close()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "not found"),
        ("clusters: [", "ParserError"),
        ("", "is no kubeconfig"),
        ("{}", "'clusters' is missing"),
        ("{clusters: [], contexts: []}", "No current context"),
        ("{clusters: [], contexts: [], current-context: x}", "'x' not found"),
        ("{clusters: [{name: k, cluster: {server: 7}}], contexts: []}", "ValidationError"),
    ],
)
def test_a_file_that_is_no_good_is_refused_with_its_problem(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    path = tmp_path / "config"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KubernetesConfigError, match=problem):
        find_config(path)


@pytest.mark.parametrize(
    ("cluster", "problem"),
    [
        ({**CLUSTER, "certificate-authority": "/absent.crt"}, "/absent.crt"),
        ({**CLUSTER, "certificate-authority": "/dev/null"}, "/dev/null"),
        ({"server": "https://[::1"}, "Invalid IPv6 URL"),
        ({"server": "127.0.0.1:6443"}, "https://"),
        ({"server": "ftp://127.0.0.1:6443"}, "https://"),
    ],
)
def test_a_cluster_that_cannot_be_spoken_to_is_refused(
    tmp_path: Path, cluster: dict[str, Any], problem: str
) -> None:
    config = find_config(write(tmp_path / "config", cluster))
    with pytest.raises(KubernetesConfigError, match=problem):
        Api(config)


def test_outside_of_a_cluster_and_without_a_file_there_is_nothing_to_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(KubernetesConfigError, match="kube/config not found"):
        find_config(None)


async def test_a_request_cancelled_in_its_handshake_leaves_no_connection(tmp_path: Path) -> None:
    async with silent_server() as server:
        cluster = {"server": f"https://127.0.0.1:{server.port}"}
        api = Api(find_config(write(tmp_path / "config", cluster)))
        await server.cut_off(api.get("version", dict))
        await api.close()
