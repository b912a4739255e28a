"""The settings of the image fetcher's daemon."""

from __future__ import annotations

import ipaddress
import platform
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from copydesk.common.tls.settings import NatsTlsSettings
from copydesk.imagefetcher.fetch.fetcher import Terms
from copydesk.imagefetcher.paths import RUN_DIR


class ImageFetcherSettings(NatsTlsSettings, env_prefix="COPYDESK_IMAGEFETCHER_"):
    """Environment variables `COPYDESK_IMAGEFETCHER_<KEY>`."""

    state_dir: Path = Field(
        Path("/var/lib/copydesk/imagefetcher"),
        description="Folder of cached sectors, images and the ledger; on a disk that outlives a restart.",
    )
    run_dir: Path = Field(
        Path(RUN_DIR),
        description="Folder of the sockets and the devices' mount; under /run, as it need not outlive a boot.",
    )
    cache_limit_mb: int = Field(
        20_480,
        ge=16,
        description="Mebibytes of sectors on disk; beyond 20,480 those used longest ago go, to be fetched again.",
    )
    memory_mb: int = Field(
        64,
        ge=8,
        le=16_384,
        description="Mebibytes of sectors in memory for a full disk; 64 are what sixteen readers use at a time.",
    )
    device_threads: int = Field(
        2, ge=1, le=32, description="Threads that answer the kernel; two, since misses do not hold them."
    )
    demand_fetches: int = Field(
        16,
        ge=1,
        le=256,
        description="Requests at a time for sectors that a reader waits for; 16 fill a slow link.",
    )
    prefetch_fetches: int = Field(
        4,
        ge=1,
        le=64,
        description="Requests at a time ahead of readers; 4, which leaves the link to those who wait.",
    )
    run_sectors: int = Field(
        4,
        ge=1,
        le=64,
        description="Sectors that one request ahead of readers brings at most; 4 are 16 MiB.",
    )
    attempt_timeout_ms: int = Field(
        20_000,
        ge=50,
        le=600_000,
        description="Milliseconds that one request may take; 20,000 bring a sector at 2 Mbit/s.",
    )
    fetch_deadline_ms: int = Field(
        60_000,
        ge=100,
        le=3_600_000,
        description="Milliseconds after which no source is asked again and the reader gets EIO; 60,000 outlast a "
        "restart of the registry.",
    )
    fetch_rounds: int = Field(
        8, ge=1, le=1_000, description="Times that all sources are asked for a sector that a reader waits for."
    )
    background: bool = Field(
        True,
        description="Whether mounted images are completed in the background; then they need no registry any more.",
    )
    background_mb_s: float = Field(
        20.0,
        gt=0,
        description="Megabytes a second fetched in the background; 20 leave most of 1 Gbit/s to others.",
    )
    background_delay_ms: int = Field(
        15_000,
        ge=0,
        le=3_600_000,
        description="Milliseconds that completion rests after a new image; in 15,000 most programs have started.",
    )
    mirrors: str = Field(
        "",
        description="URLs of registries to ask before the image's own, in order, with commas; none by default.",
    )
    plain_http: bool = Field(
        True, description="Whether registries on this machine are spoken to without TLS, as they mostly are."
    )
    plain_http_registries: str = Field(
        "",
        description="Other registries to speak to without TLS, as host:port with commas; none, it can be read.",
    )
    docker_config: Path | None = Field(
        None,
        description="Folder of docker's config.json with credentials; by default DOCKER_CONFIG, else ~/.docker.",
    )
    snapshotter: bool = Field(
        False,
        description="Whether to serve containerd, at snapshotter.sock in RUN_DIR; off, as not every node has it.",
    )
    forecast: bool = Field(
        False,
        description="Whether to fetch a model's image ahead when the autoscaler says that more pods come; off, "
        "as it needs NATS.",
    )
    node: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_.-]{0,253}$",
        description="Name of this node among its peers; by default that of the machine.",
    )
    nats_url: str = Field(
        "nats://127.0.0.1:4222",
        description="NATS server over which peers find one another; used with PEER_PORT or FORECAST only.",
    )
    nats_token: SecretStr = Field(
        SecretStr(""), description="Token for NATS; empty by default, as a local server asks for none."
    )
    peer_token: SecretStr = Field(
        SecretStr(""), description="Token that all peers share; PEER_PORT needs one, since images may be private."
    )
    peer_host: str = Field(
        "127.0.0.1", min_length=1, description="Address that sectors are served on; loopback until others may ask."
    )
    peer_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="Port that sectors are served on to peers; 0 is off, neither given nor taken.",
    )
    peer_advertise: str = Field("", description="Address under which peers reach this node; by default PEER_HOST.")
    metrics_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address of metrics and health; loopback unless others ask for them.",
    )
    metrics_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="Port of /metrics, /healthz and /readyz; 0 is off: the control socket answers them too.",
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "info", description="Least level that is logged; info is a line for each mount, not for each read."
    )

    @field_validator("mirrors")
    @classmethod
    def _urls(cls, value: str) -> str:
        for url in _split(value):
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"{url!r} is no URL: expected https://host[:port]")
        return value

    @field_validator("peer_port")
    @classmethod
    def _guarded(cls, value: int, info: ValidationInfo) -> int:
        token = info.data.get("peer_token") or SecretStr("")
        if value and len(token.get_secret_value()) < 16:
            raise ValueError("serving peers needs a PEER_TOKEN of 16 characters or more")
        return value

    @field_validator("peer_advertise")
    @classmethod
    def _reachable(cls, value: str, info: ValidationInfo) -> str:
        host = str(info.data.get("peer_host", ""))
        if not value and info.data.get("peer_port") and _is_unspecified(host):
            raise ValueError(f"peers cannot connect to {host}: name the address of this node")
        return value

    @property
    def mirror_urls(self) -> list[str]:
        """The mirrors, in their order."""
        return _split(self.mirrors)

    @property
    def plain_http_hosts(self) -> frozenset[str]:
        """Registries and mirrors, not on this machine, that are spoken to without TLS."""
        mirrors = [urlsplit(url).netloc for url in self.mirror_urls if url.startswith("http:")]
        return frozenset([*_split(self.plain_http_registries), *mirrors])

    @property
    def node_name(self) -> str:
        """How this node is called among its peers."""
        return self.node or platform.node() or "node"

    @property
    def advertised(self) -> str:
        """Under which address peers reach this node."""
        return self.peer_advertise or self.peer_host

    def terms(self) -> Terms:
        """Return how much is fetched at a time, and how long is tried, in seconds."""
        return Terms(
            attempt=self.attempt_timeout_ms / 1000,
            deadline=self.fetch_deadline_ms / 1000,
            rounds=self.fetch_rounds,
            demand=self.demand_fetches,
            prefetch=self.prefetch_fetches,
            run=self.run_sectors,
        )


def _split(value: str) -> list[str]:
    return [part.strip().rstrip("/") for part in value.split(",") if part.strip()]


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
