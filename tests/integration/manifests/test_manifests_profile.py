"""The profile of the manifests is that of the model that pods prepare."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from copydesk.common.profile import read_profile
from copydesk.inference.checkpoint import read_digest
from tests.fixtures.default_model import default_model_or_skip
from tests.fixtures.manifests import K8S

PROFILE = K8S / "base" / "profiles" / "gec-en.yaml"


def test_the_profile_names_the_default_model() -> None:
    directory: Path = default_model_or_skip()
    profile = read_profile(PROFILE)
    said = f"a new default model: put its digest into {PROFILE.relative_to(K8S.parent)}"
    assert profile.model.digest == read_digest(directory), said
    template = (directory / profile.prompt.template).read_bytes()
    assert profile.prompt.digest == hashlib.sha256(template).hexdigest(), said
    assert profile.model.bytes == (directory / "model.safetensors").stat().st_size
    assert profile.model.architecture in json.loads((directory / "config.json").read_text())["architectures"]
