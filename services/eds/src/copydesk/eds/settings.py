"""The settings of endpoint discovery."""

from __future__ import annotations

import enum
import math
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from copydesk.common.hosts import is_loopback
from copydesk.common.tls.settings import NatsTlsSettings, RpcClientTlsSettings
from copydesk.eds.discovery import Policy
from copydesk.eds.guard import Limits
from copydesk.eds.schedule import Pace

# The syntax of label selectors: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_KEY = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_SET = rf"\(\s*{_VALUE}(\s*,\s*{_VALUE})*\s*\)"
_NEED = rf"\s*(!\s*{_KEY}|{_KEY}(\s*(==?|!=)\s*{_VALUE}|\s*[<>]\s*[0-9]+|\s+(in|notin)\s*{_SET})?)\s*"
_SELECTOR = rf"^({_NEED}(,{_NEED})*)?$"


class SourceKind(enum.StrEnum):
    """Where the endpoints come from."""

    HEARTBEAT = "heartbeat"
    STATIC = "static"
    KUBERNETES = "kubernetes"


class Election(enum.StrEnum):
    """How it is decided which of several replicas publishes."""

    AUTO = "auto"
    LEASE = "lease"
    NONE = "none"


class EdsSettings(RpcClientTlsSettings, NatsTlsSettings, env_prefix="COPYDESK_EDS_"):
    """Environment variables `COPYDESK_EDS_<KEY>`."""

    nats_url: str = Field(
        "nats://127.0.0.1:4222", description="NATS server; the default is a local one on its usual port."
    )
    nats_token: SecretStr = Field(
        SecretStr(""), description="Token for NATS; empty by default, as a local server asks for none."
    )
    source: SourceKind = Field(
        SourceKind.HEARTBEAT,
        description="heartbeat (pods' load reports), static (a file) or kubernetes (EndpointSlices); the default "
        "needs no configuration.",
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
    kube_config: Path | None = Field(
        None,
        description="File that says how to reach the API server; by default that of the pod's service account, "
        "then KUBECONFIG, then ~/.kube/config.",
    )
    kube_namespace: str = Field(
        "",
        pattern=r"^(\*|[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$",
        description="Namespace of the Services, or * for all, which takes a ClusterRole; by default the one that "
        "this process runs in.",
    )
    kube_selector: str = Field(
        "copydesk/model",
        pattern=_SELECTOR,
        description="Label selector of the Services; the default is met by all that name their model by a label.",
    )
    kube_port: str = Field(
        "rpc",
        min_length=1,
        description="Name of the Services' port for gateways, where none is declared; as in k8s/.",
    )
    kube_silence_ms: int = Field(
        60_000,
        ge=1_000,
        le=65_000,
        description="Milliseconds after which a watch that says nothing is given up and all is listed again; a "
        "server that is well says something every 30 s.",
    )
    kube_page: int = Field(
        500, ge=1, le=10_000, description="Objects asked for at once in a list; 500 as kubectl does."
    )
    election: Election = Field(
        Election.AUTO,
        description="Which replica publishes: lease (who holds a Kubernetes Lease), none (this one, there is no "
        "other) or auto: lease with the kubernetes source, else none.",
    )
    lease_name: str = Field(
        "copydesk-eds",
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
        description="Name of the Lease, in this process's own namespace; replicas that share it share one role.",
    )
    lease_seconds: int = Field(
        6,
        ge=2,
        le=3_600,
        description="Seconds for which a Lease holds without being renewed; after 6 a dead publisher is replaced, "
        "before gateways (10 s) stop heeding its epoch.",
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
        SecretStr(""),
        description="Token that the pods ask for, used by probes, of several lines the first; empty by default, "
        "as theirs is.",
    )
    xds_port: int = Field(
        0, ge=0, le=65_535, description="Port of the xDS server for Envoy and gRPC clients; 0 is off: few need it."
    )
    xds_token: SecretStr = Field(
        SecretStr(""),
        description="Token that subscribers of xDS must show; empty asks for none, on loopback only.",
    )
    xds_tls_cert_file: Path | None = Field(
        None, description="PEM certificate chain of the xDS server; without one it speaks plain HTTP/2."
    )
    xds_tls_key_file: Path | None = Field(None, description="PEM key of the xDS server's certificate.")
    xds_client_ca_file: Path | None = Field(
        None, description="PEM certificates by which subscribers' own are checked; without it they need none."
    )
    xds_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address of the xDS server; loopback, as any other needs XDS_TOKEN or XDS_CLIENT_CA_FILE.",
    )
    xds_max_streams: int = Field(
        1_000,
        ge=1,
        description="Subscribers of xDS at most; 1,000 proxies are a large fleet, and each takes some 100 kB.",
    )
    xds_slow_start_ms: int = Field(
        10_000,
        ge=0,
        description="Milliseconds in which the weight of a new pod grows to a full one, as for the gateways.",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address of metrics and health; loopback unless others ask for them.",
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

    @property
    def needs_lease(self) -> bool:
        """Whether replicas are told apart by a Lease."""
        auto = self.election is Election.AUTO and self.source is SourceKind.KUBERNETES
        return auto or self.election is Election.LEASE

    @field_validator("xds_tls_key_file")
    @classmethod
    def _beside_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if (value is None) is not (info.data.get("xds_tls_cert_file") is None):
            raise ValueError("XDS_TLS_CERT_FILE and XDS_TLS_KEY_FILE need each other")
        return value

    @field_validator("xds_client_ca_file")
    @classmethod
    def _under_tls(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None and info.data.get("xds_tls_cert_file") is None:
            raise ValueError("certificates of subscribers need TLS: set XDS_TLS_CERT_FILE and XDS_TLS_KEY_FILE")
        return value

    @field_validator("xds_host")
    @classmethod
    def _private_unless_guarded(cls, value: str, info: ValidationInfo) -> str:
        token = info.data.get("xds_token") or SecretStr("")
        guarded = token.get_secret_value() or info.data.get("xds_client_ca_file")
        if info.data.get("xds_port") and not guarded and not is_loopback(value):
            raise ValueError("other than on loopback, set XDS_TOKEN or XDS_CLIENT_CA_FILE")
        return value

    def policy(self) -> Policy:
        """Return the numbers by which discovery decides, in seconds."""
        return Policy(
            timeout=self.heartbeat_timeout_ms / 1000,
            # Other sources name everybody at once; until then nobody is known.
            settle=self.settle_ms / 1000 if self.source is SourceKind.HEARTBEAT else math.inf,
            limits=Limits(window=self.hold_window_ms / 1000, hold=self.hold_limit_ms / 1000),
            pace=Pace(debounce=self.debounce_ms / 1000, interval=self.publish_interval_ms / 1000),
        )
