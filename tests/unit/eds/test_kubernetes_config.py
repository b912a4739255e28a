"""How to reach the API server: what is found, and what is said where nothing usable is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from copydesk.common.settings import load_settings
from copydesk.eds.discovery import Discovery
from copydesk.eds.kubernetes.api import Api, find_config
from copydesk.eds.kubernetes.trouble import KubernetesConfigError
from copydesk.eds.leadership import Alone
from copydesk.eds.roster import Elapsed, Listed
from copydesk.eds.settings import EdsSettings
from copydesk.eds.sources import make_leadership

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


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, False),
        ({"source": "kubernetes"}, True),
        ({"source": "kubernetes", "election": "none"}, False),
        ({"election": "lease"}, True),
    ],
)
def test_a_lease_is_needed_with_the_kubernetes_source_or_where_it_is_asked_for(
    settings: dict[str, Any], needed: bool
) -> None:
    assert load_settings(EdsSettings, warn=False, **settings).needs_lease is needed


def test_without_an_election_the_epoch_is_the_start() -> None:
    leadership = make_leadership(load_settings(EdsSettings), wall=lambda: 12.5)
    assert isinstance(leadership, Alone)
    assert (leadership.epoch, leadership.is_leader(0.0)) == (12_500, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kube_namespace", "Prod"),
        ("kube_silence_ms", "70001"),
        ("kube_selector", "!!x in ("),
        ("kube_selector", "app=a b"),
        ("lease_seconds", "1"),
        ("lease_name", "Eds"),
        ("metrics_host", ""),
    ],
)
def test_bad_settings_are_named(key: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        load_settings(EdsSettings, warn=False, **{key: value})
    assert caught.value.code == 2
    assert f"COPYDESK_EDS_{key.upper()}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "selector",
    [
        "",
        "copydesk/model",
        "!copydesk/model",
        "copydesk/model=gec-en, tier != canary",
        "app==x,env in (prod, qa),zone notin (a,),replicas>3",
    ],
)
def test_each_form_of_a_label_selector_is_taken(selector: str) -> None:
    assert load_settings(EdsSettings, warn=False, kube_selector=selector).kube_selector == selector


def test_only_reports_of_pods_are_complete_after_a_time_and_lists_when_they_come() -> None:
    now = Elapsed(1e9, connected_since=0.0)
    for source, settled in {"heartbeat": True, "kubernetes": False}.items():
        discovery = Discovery(load_settings(EdsSettings, warn=False, source=source).policy())
        discovery.apply(now)
        assert discovery.settled is settled
        discovery.apply(Listed({}))
        assert discovery.settled
