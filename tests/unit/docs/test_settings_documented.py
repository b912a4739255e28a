"""The page about operations names every setting, with its default and what the code says of it."""

from __future__ import annotations

import enum
from pathlib import Path

import pytest
from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.common.settings import ServiceSettings, own_fields_first, secret_fields
from copydesk.eds.settings import EdsSettings
from copydesk.gateway.settings import GatewaySettings
from copydesk.imagefetcher.settings import ImageFetcherSettings
from copydesk.inference.settings import InferenceSettings

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"


def shown(default: object) -> str:
    if default is PydanticUndefined:
        return "needed"
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if default in (None, ""):
        return "none"
    return f"`{default.value if isinstance(default, enum.Enum) else default}`"


SERVICES = [GatewaySettings, EdsSettings, AutoscalerSettings, InferenceSettings, ImageFetcherSettings]


@pytest.mark.parametrize("settings", SERVICES)
def test_each_setting_stands_in_the_table_of_its_service(settings: type[ServiceSettings]) -> None:
    _, _, section = PAGE.read_text().partition(f"`{settings.model_config['env_prefix']}<KEY>`")
    table = section.partition("\n### ")[0].splitlines()
    rows = [
        f"| `{name.upper()}` | {shown(field.default)} | {field.description} |"
        for name, field in own_fields_first(settings)
    ]
    assert [line for line in table if line.startswith("| `")] == rows


@pytest.mark.parametrize("settings", SERVICES)
def test_each_secret_that_may_stand_in_a_file_is_named(settings: type[ServiceSettings]) -> None:
    _, _, section = PAGE.read_text().partition("\n**Secrets from files.**")
    table = section.partition("\n### ")[0].splitlines()
    secrets = ", ".join(f"`{name.upper()}_FILE`" for name in secret_fields(settings))
    assert f"| `{settings.model_config['env_prefix']}` | {secrets} |" in table
