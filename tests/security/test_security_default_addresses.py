"""By their defaults, services listen on loopback alone, and look nowhere but there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic_settings import BaseSettings

from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.common.settings import load_settings
from copydesk.eds.settings import EdsSettings
from copydesk.gateway.settings import GatewaySettings
from copydesk.imagefetcher.settings import ImageFetcherSettings
from copydesk.inference.settings import InferenceSettings

SERVICES = (AutoscalerSettings, EdsSettings, GatewaySettings, ImageFetcherSettings, InferenceSettings)
NOT_LISTENED_ON = {"advertise_host"}


@pytest.mark.parametrize("settings", SERVICES, ids=lambda settings: settings.__name__)
def test_every_address_to_listen_on_is_loopback(settings: type[BaseSettings]) -> None:
    hosts = {
        name: field.default
        for name, field in settings.model_fields.items()
        if (name == "host" or name.endswith("_host")) and name not in NOT_LISTENED_ON
    }
    assert hosts
    assert set(hosts.values()) <= {"127.0.0.1"}, hosts


@pytest.mark.parametrize("settings", SERVICES, ids=lambda settings: settings.__name__)
def test_nats_is_looked_for_on_this_machine(settings: type[BaseSettings]) -> None:
    assert str(settings.model_fields["nats_url"].default).startswith(("nats://127.0.0.1:", "None"))


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("COPYDESK_INFERENCE_")]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "pods.example"])
@pytest.mark.parametrize("token", ["", "\n", " "])
def test_a_pod_that_others_reach_asks_for_a_token_or_a_certificate(
    host: str, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen: dict[str, Any] = {"model_dir": "/models", "host": host}
    with pytest.raises(SystemExit) as ended:
        load_settings(InferenceSettings, **chosen, rpc_token=token)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"COPYDESK_INFERENCE_HOST={host} can be reached from other machines" in said
    assert "set COPYDESK_INFERENCE_RPC_TOKEN or COPYDESK_INFERENCE_RPC_TLS_CERT_FILE" in said
    assert load_settings(InferenceSettings, **chosen, rpc_token="a-token").host == host
    certificates: dict[str, Any] = {f"rpc_tls_{kind}_file": Path(kind) for kind in ("cert", "key", "ca")}
    assert load_settings(InferenceSettings, **chosen, **certificates).host == host


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_on_loopback_a_pod_needs_neither(host: str) -> None:
    assert load_settings(InferenceSettings, model_dir="/models", host=host).host == host
