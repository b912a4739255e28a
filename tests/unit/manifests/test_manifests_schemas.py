"""Every object keeps to the schemas of the oldest and the newest Kubernetes that is supported, and to no less."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import kubernetes_validate.utils as kubernetes_validate_utils  # type: ignore[import-untyped]
import pytest

from tests.fixtures.manifests import CUSTOM, OVERLAYS, Object, rendered

OLDEST, NEWEST = "1.25", "1.37"


@pytest.fixture(autouse=True, scope="module")
def schemas_read_once() -> Iterator[None]:
    """It reads a megabyte of definitions for each object otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            kubernetes_validate_utils, "schema_contents", cache(kubernetes_validate_utils.schema_contents)
        )
        yield


def of_kubernetes() -> list[Object]:
    """What all overlays have, each object once."""
    found = [each for overlay in OVERLAYS for each in rendered(overlay) if each["kind"] not in CUSTOM]
    return [each for index, each in enumerate(found) if each not in found[:index]]


def validate(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_schemas_of_kubernetes_hold_strictly(version: str) -> None:
    for manifest in of_kubernetes():
        validate(manifest, version)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_a_key_that_nobody_knows_is_found(version: str) -> None:
    seen = set()
    for manifest in of_kubernetes():
        if manifest["kind"] in seen:
            continue
        seen.add(manifest["kind"])
        wrong = copy.deepcopy(manifest)
        wrong["metadata"]["nmae"] = "x"
        with pytest.raises(kubernetes_validate.ValidationError):
            validate(wrong, version)
