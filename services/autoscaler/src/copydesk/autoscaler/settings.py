"""The settings of the autoscaler."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import Field, SecretStr, field_validator

from copydesk.common.messages import subject_token
from copydesk.common.profile import Profile
from copydesk.common.profiled_settings import ProfiledSettings
from copydesk.common.tls.settings import NatsTlsSettings


class ActuatorKind(enum.StrEnum):
    """Who makes the fleet as large as was decided."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"
    SHADOW = "shadow"


class AutoscalerSettings(NatsTlsSettings, ProfiledSettings, env_prefix="COPYDESK_AUTOSCALER_"):
    """Environment variables `COPYDESK_AUTOSCALER_<KEY>`."""

    nats_url: str = Field(
        "nats://127.0.0.1:4222", description="NATS server; the default is a local one on its usual port."
    )
    nats_token: SecretStr = Field(
        SecretStr(""), description="Token for NATS; empty by default, as a local server asks for none."
    )
    actuator: ActuatorKind = Field(
        ActuatorKind.LOCAL,
        description="Who acts: local (the supervisor of copydesk up, over NATS), kubernetes (the scale "
        "subresource) or shadow (nobody; decisions are only published and logged). The default needs no cluster.",
    )
    models_file: Path | None = Field(
        None, description="YAML file of several models; with it, what stands below for one model is not used."
    )
    model: str = Field(
        "gec-en", description="The model, where there is one; gec-en is the one Copydesk comes with."
    )
    min_pods: int = Field(1, ge=1, description="Pods at least; 1, since without any nobody could tell demand.")
    max_pods: int = Field(
        8,
        ge=1,
        le=10_000,
        description="Pods at most; 8, so that a mistake costs little: say what you can pay for.",
    )
    profile: Path | None = Field(
        None,
        description="Model profile (YAML) that says MODEL, MODEL_DIGEST, COLD_START_S and what a pod can do, "
        "where no variable says otherwise; none by default.",
    )
    certificate: Path | None = Field(
        None, description="What copydesk capacity measured of this model on this hardware; else a pod is assumed."
    )
    hardware: str = Field(
        "", description="What pods run on, as the certificate names it; a certificate for another is refused."
    )
    model_digest: str = Field(
        "",
        description="Digest of the weights that pods run; by default what they report within the first seconds.",
    )
    cold_start_s: float = Field(
        60.0, gt=0, le=3_600, description="Seconds in which nine of ten new pods are ready; measure yours."
    )
    concurrency: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="Requests that a pod runs within the objective, assumed without a certificate; 0: as many as "
        "it reports that it can run side by side.",
    )
    rate: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="Requests a second of a pod, assumed without a certificate; 0: each takes half the objective.",
    )
    slo_ms: float = Field(
        1_000.0, ge=1, le=600_000, description="Objective for P99 latency in milliseconds, without a certificate."
    )
    image: str = Field(
        "", description="Image that nodes are to have at hand before more pods land; none: no hint."
    )
    shadow_file: Path | None = Field(
        None, description="YAML file of a candidate configuration that runs beside the live one; none by default."
    )
    interval_ms: int = Field(
        2_000, ge=100, le=10_000, description="Milliseconds between decisions; rules were simulated with 2,000."
    )
    settle_ms: int = Field(
        3_000,
        ge=0,
        le=20_000,
        description="Milliseconds of listening before the first decision; in 3,000 everybody has spoken twice.",
    )
    state_dir: Path | None = Field(
        None,
        description="Folder for the decision log and what is learned over days; by default copydesk/autoscaler in "
        "the user's state folder (XDG_STATE_HOME, ~/.local/state).",
    )
    log_file: Path | None = Field(
        None, description="The decision log, JSON lines; by default decisions.jsonl in STATE_DIR."
    )
    log_bytes: int = Field(
        67_108_864,
        ge=4_096,
        description="Bytes after which the decision log is begun anew; 64 MiB are a day of one model.",
    )
    log_files: int = Field(
        7, ge=1, le=1_000, description="Decision logs kept, the present one among them; 7 are about a week."
    )
    kube_config: Path | None = Field(
        None,
        description="File that says how to reach the API server; by default that of the pod's service account, "
        "then KUBECONFIG, then ~/.kube/config.",
    )
    kube_namespace: str = Field(
        "",
        pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$",
        description="Namespace of the workloads and the Lease; by default the one that this process runs in.",
    )
    kube_workload: str = Field(
        "",
        description="What is scaled: deployments/NAME, statefulsets/NAME or replicasets/NAME; by default the "
        "Deployment that is named as the model.",
    )
    lease_name: str = Field(
        "copydesk-autoscaler",
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
        description="Name of the Lease by which one of several autoscalers leads; to share it is to share a role.",
    )
    lease_seconds: int = Field(
        6,
        ge=2,
        le=3_600,
        description="Seconds for which a Lease holds unrenewed; after 6 a dead leader is replaced.",
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
        description="Port of /metrics, /healthz, /readyz and /decisions; 0 is off, since two may share a machine.",
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        "info", description="Least level that is logged; info is a line for each change of size."
    )

    @field_validator("model")
    @classmethod
    def _stands_in_subjects(cls, value: str) -> str:
        return subject_token(value)

    @classmethod
    def said_by(cls, profile: Profile, path: Path) -> dict[str, Any]:
        """Return what a profile says of the autoscaler; what a pod can do, the plan reads."""
        said: dict[str, Any] = {"model": profile.model.name, "model_digest": profile.model.digest}
        if profile.cold_start_seconds is not None:
            said["cold_start_s"] = profile.cold_start_seconds
        return said

    @property
    def folder(self) -> Path:
        """Where state is kept."""
        return self.state_dir or platformdirs.user_state_path("copydesk") / "autoscaler"

    @property
    def decision_log(self) -> Path:
        """Where decisions are logged."""
        return self.log_file or self.folder / "decisions.jsonl"
