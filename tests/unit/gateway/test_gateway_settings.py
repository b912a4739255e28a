"""The gateway's settings: names, defaults, and what is refused at start."""

from __future__ import annotations

import pytest

from copydesk.common.settings import load_settings
from copydesk.gateway.settings import GatewaySettings


def test_defaults_are_loopback_and_the_limits_of_the_documentation() -> None:
    settings = GatewaySettings()
    assert (settings.host, settings.port, settings.model) == ("127.0.0.1", 8080, "gec-en")
    assert (settings.max_body_bytes, settings.max_characters, settings.max_texts) == (262_144, 20_000, 256)


def test_the_environment_is_read_under_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPYDESK_GATEWAY_DEADLINE_MS", "1234")
    assert GatewaySettings().deadline_ms == 1234


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"),
        ("PORT", "70000"),
        ("MODEL", "a.b"),
        ("LOG_LEVEL", "loud"),
        ("CORE", "c"),
        ("DEADLINE_MS", "0"),
        ("DEADLINE_MS", "100000000000000000000"),
        ("KEEPALIVE_MS", "99999999999999"),
        ("MAX_BODY_BYTES", "10000000000000000000"),
        ("MAX_SENTENCE_CHARACTERS", "10000000000000000000"),
        ("OVERCOMMIT", "inf"),
        ("OVERCOMMIT", "nan"),
        ("RETRY_FLOOR", "nan"),
    ],
)
def test_a_bad_value_is_named_and_ends_the_process(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"COPYDESK_GATEWAY_{name}", value)
    with pytest.raises(SystemExit) as caught:
        load_settings(GatewaySettings)
    assert caught.value.code == 2
    assert f"COPYDESK_GATEWAY_{name}={value!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("gateway.example", False), ("127.0.0.1.example", False)],
)  # fmt: skip
def test_only_addresses_of_this_machine_count_as_loopback(host: str, loopback: bool) -> None:
    assert GatewaySettings(host=host).loopback is loopback


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in GatewaySettings.model_fields.values())
