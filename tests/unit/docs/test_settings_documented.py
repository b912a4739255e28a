"""The page about operations names every setting, with its default and what the code says of it."""

from __future__ import annotations

import enum
from pathlib import Path

import pytest
from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.common.settings import ServiceSettings
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


@pytest.mark.parametrize(
    "settings", [GatewaySettings, EdsSettings, AutoscalerSettings, InferenceSettings, ImageFetcherSettings]
)
def test_each_setting_stands_in_the_table_of_its_service(settings: type[ServiceSettings]) -> None:
    _, _, section = PAGE.read_text().partition(f"`{settings.model_config['env_prefix']}<KEY>`")
    table = section.partition("\n### ")[0].splitlines()
    rows = [
        f"| `{name.upper()}` | {shown(field.default)} | {field.description} |"
        for name, field in settings.model_fields.items()
    ]
    assert [line for line in table if line.startswith("| `")] == rows
