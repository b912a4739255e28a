"""The gateway's settings."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from copydesk.common.messages import subject_token
from copydesk.common.settings import ServiceSettings
from copydesk.gateway.limits import Limits


class GatewaySettings(ServiceSettings, env_prefix="COPYDESK_GATEWAY_"):
    """Everything that can be set, each with its unit and the reason for its default."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="address to listen on; loopback, because keys are off"
    )
    port: int = Field(default=8080, ge=0, le=65535, description="TCP port of the REST API; 0 takes a free one")
    api_keys_file: Path | None = Field(
        default=None,
        description="file of API keys, one 'name:sha256-hex' a line; none by default, so only loopback is served",
    )
    nats_url: str = Field(default="nats://127.0.0.1:4222", description="NATS server that carries the list of pods")
    nats_token: SecretStr = Field(
        default=SecretStr(""), description="token for NATS; empty because the local one asks none"
    )
    model: Annotated[str, AfterValidator(subject_token)] = Field(
        default="gec-en", description="name of the model served"
    )
    rpc_token: SecretStr = Field(
        default=SecretStr(""), description="token that pods ask for; empty on one machine"
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        default="info",
        description="least severe log line written; info shows changes of the fleet, not each request",
    )

    deadline_ms: int = Field(
        default=60_000,
        ge=1,
        description="milliseconds a request may take unless it says so itself; what HTTP clients wait",
    )
    max_deadline_ms: int = Field(
        default=600_000,
        ge=1,
        description="most milliseconds a request may ask for; ten minutes, so that none holds on for ever",
    )
    max_body_bytes: int = Field(
        default=256 * 1024,
        ge=1024,
        description="most bytes of a body; 20,000 characters fit even when all are escaped",
    )
    max_characters: int = Field(
        default=20_000,
        ge=1,
        description="most characters in all texts of a request; about 200 sentences, some seconds' work",
    )
    max_texts: int = Field(
        default=256, ge=1, description="most texts of a request; about one a sentence within the characters"
    )
    max_sentence_characters: int = Field(
        default=500,
        ge=16,
        description="characters after which a sentence is cut; the model was trained on sentences, not pages",
    )
    request_concurrency: int = Field(
        default=32,
        ge=1,
        description="most sentences of one request in flight; fills a pod's batch, leaves room for others",
    )
    body_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        description="milliseconds for a body to arrive; 256 KiB in that time is a slow modem's pace",
    )
    endpoint_wait_ms: int = Field(
        default=1_000,
        ge=0,
        description="milliseconds to wait for a ready pod before 503; covers a reconnect, not a cold start",
    )
    connect_timeout_ms: int = Field(
        default=2_000, ge=1, description="milliseconds to connect to a pod; far above any LAN's"
    )
    keepalive_ms: int = Field(
        default=1_000,
        ge=10,
        description="milliseconds without an answer after which a pod is pinged; keeps its load fresh (3 s)",
    )
    keepalive_timeout_ms: int = Field(
        default=5_000,
        ge=10,
        description="milliseconds for a ping's answer before the connection counts as lost; machines stall",
    )
    retry_ratio: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="retries allowed as a share of requests; more would double an overload",
    )
    retry_floor: float = Field(
        default=10.0,
        ge=0,
        description="retries a second allowed on top; a quiet gateway must be able to retry at all",
    )
    drain_grace_ms: int = Field(
        default=250,
        ge=0,
        description="milliseconds of answering idle connections with 'close' after SIGTERM, before closing them",
    )
    shutdown_timeout_ms: int = Field(
        default=60_000,
        ge=0,
        description="milliseconds to finish accepted requests after SIGTERM; the default deadline",
    )

    @property
    def limits(self) -> Limits:
        """The limits of one request."""
        return Limits(self.max_body_bytes, self.max_characters, self.max_texts, self.max_deadline_ms)

    @property
    def loopback(self) -> bool:
        """Whether `host` can be reached from this machine only; a name other than localhost counts as not."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
