"""The settings of discovery in Kubernetes: what they ask for, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from copydesk.common.settings import load_settings
from copydesk.eds.discovery import Discovery
from copydesk.eds.leadership import Alone
from copydesk.eds.roster import Elapsed, Listed
from copydesk.eds.settings import EdsSettings
from copydesk.eds.sources import make_leadership


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
