"""A pod whose files of TLS cannot be used does not start, and names the setting before any child could fail."""

from pathlib import Path

import pytest

from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.pod.supervisor import supervise
from copydesk.inference.settings import InferenceSettings
from tests.fixtures.fleet_certificates import make_certificates, variables


@pytest.mark.parametrize("link", ["RPC", "NATS"])
async def test_files_that_do_not_belong_together_are_told_with_their_setting(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = make_certificates(tmp_path)
    (fleet / "eds" / "tls.key").replace(fleet / "inference" / "tls.key")
    monkeypatch.setenv("COPYDESK_INFERENCE_MODEL_DIR", str(tmp_path))
    for name, value in variables(fleet, "inference", "COPYDESK_INFERENCE_", link).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CannotStartError) as caught:
        await supervise(InferenceSettings())  # type: ignore[call-arg]
    key = f"{fleet}/inference/tls.key"
    assert str(caught.value).startswith(f"COPYDESK_INFERENCE_{link}_TLS_KEY_FILE: {key}: the key does not belong")
