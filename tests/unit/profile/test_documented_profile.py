"""The page about models: its example is a profile, and no key goes without a word."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from copydesk.common.profile import (
    CapacityPart,
    CertificatePart,
    EnginePart,
    ModelPart,
    PrecisionPart,
    Profile,
    PromptPart,
    QualityPart,
    profile_of,
)

PAGE = (Path(__file__).parents[3] / "docs" / "models.md").read_text()


def test_the_example_is_a_profile() -> None:
    found = re.search(r"```yaml\n(version: .*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert profile_of(yaml.safe_load(found[1]), "docs/models.md").model.name == "gec-en"


@pytest.mark.parametrize(
    "part",
    [
        Profile,
        ModelPart,
        PromptPart,
        PrecisionPart,
        EnginePart,
        CapacityPart,
        CertificatePart,
        QualityPart,
    ],
)
def test_each_key_is_explained_or_shown(part: type[msgspec.Struct]) -> None:
    missing = [key for key in part.__struct_fields__ if not re.search(rf"`{key}`|^ *{key}:", PAGE, re.MULTILINE)]
    assert missing == []
