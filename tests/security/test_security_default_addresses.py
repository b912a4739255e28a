"""By their defaults, services listen on loopback alone, and look nowhere but there."""

from __future__ import annotations

import pytest
from pydantic_settings import BaseSettings

from copydesk.autoscaler.settings import AutoscalerSettings
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
