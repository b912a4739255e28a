"""The settings of endpoint discovery."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from copydesk.common.settings import ServiceSettings
from copydesk.eds.discovery import Policy
from copydesk.eds.guard import Limits
from copydesk.eds.schedule import Pace


class SourceKind(enum.StrEnum):
    """Where the endpoints come from."""

    HEARTBEAT = "heartbeat"
    STATIC = "static"


class EdsSettings(ServiceSettings, env_prefix="COPYDESK_EDS_"):
    """Environment variables `COPYDESK_EDS_<KEY>`."""

    nats_url: str = Field(
        "nats://127.0.0.1:4222", description="NATS server; the default is a local one on its usual port."
    )
    nats_token: SecretStr = Field(
        SecretStr(""), description="Token for NATS; empty by default, as a local server asks for none."
    )
    source: SourceKind = Field(
        SourceKind.HEARTBEAT,
        description="heartbeat (pods' load reports) or static (a file); the default needs no configuration.",
    )
    static_file: Path | None = Field(
        None,
        description="YAML or JSON file of endpoints for each model; needed, and only used, by the static source.",
    )
    static_poll_ms: int = Field(
        250,
        ge=10,
        le=60_000,
        description="Milliseconds between looks at the static file; 250 feels immediate and costs one stat.",
    )
    debounce_ms: int = Field(
        50,
        ge=0,
        le=5_000,
        description="Milliseconds for which changes are gathered; 50 turns a roll-out into few snapshots.",
    )
    publish_interval_ms: int = Field(
        2_000,
        ge=100,
        le=60_000,
        description="Milliseconds between full snapshots; within 2,000 a new gateway knows the fleet.",
    )
    heartbeat_timeout_ms: int = Field(
        3_000,
        ge=500,
        le=60_000,
        description="Milliseconds of silence after which a pod is gone; 3,000 are twelve lost reports in a row.",
    )
    settle_ms: int = Field(
        1_000,
        ge=0,
        le=60_000,
        description="Milliseconds of listening before the first snapshot; in 1,000 each pod reports four times.",
    )
    hold_limit_ms: int = Field(
        60_000,
        ge=0,
        le=3_600_000,
        description="Milliseconds for which an unproven mass loss is held back; gateways eject dead pods by "
        "themselves within seconds, so waiting 60,000 costs little, and dropping live ones costs all.",
    )
    hold_window_ms: int = Field(
        5_000,
        ge=0,
        le=600_000,
        description="Milliseconds within which losses count as one; 5,000 is more than the spread of a time-out.",
    )
    probe_timeout_ms: int = Field(
        1_000,
        ge=10,
        le=30_000,
        description="Milliseconds that a probe waits for a pod's hello; a live pod answers in a few.",
    )
    rpc_token: SecretStr = Field(
        SecretStr(""), description="Token that the pods ask for, used by probes; empty by default, as theirs is."
    )
    metrics_host: str = Field(
        "127.0.0.1", description="Address of metrics and health; loopback unless others ask for them."
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="Port of /metrics, /healthz, /readyz and /endpoints; 0 is off, since two may share a machine.",
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "info", description="Least level that is logged; info is a line for each change, not for each report."
    )

    @field_validator("static_file")
    @classmethod
    def _needed_by_static(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if info.data.get("source") is SourceKind.STATIC and value is None:
            raise ValueError("the static source needs the path of a YAML or JSON file")
        return value

    def policy(self) -> Policy:
        """Return the numbers by which discovery decides, in seconds."""
        return Policy(
            timeout=self.heartbeat_timeout_ms / 1000,
            settle=self.settle_ms / 1000,
            limits=Limits(window=self.hold_window_ms / 1000, hold=self.hold_limit_ms / 1000),
            pace=Pace(debounce=self.debounce_ms / 1000, interval=self.publish_interval_ms / 1000),
        )
