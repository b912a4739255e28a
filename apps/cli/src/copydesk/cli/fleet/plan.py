"""What a local fleet consists of: which processes, with which settings. Pure data, nothing is started here."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from copydesk.cli.fleet.scaling import Limits, pod_name

HOST = "127.0.0.1"
DEFAULT_MODEL = "gec-en"
AUTO = "auto"
"""The arithmetic where none was asked for: a profile says it, or the processor."""
SETTINGS_EXIT = 2
"""The exit code by which a Copydesk service says that a setting or its model is wrong."""
UNREACHED_LIMIT = "100000"
"""Requests a second: it has the gateway ask Redis for each of them, and refuse none."""
NATS_CONFIG = Path(__file__).with_name("nats.conf")
NATS_VARIABLE = "COPYDESK_NATS_TOKEN"


class Role(enum.StrEnum):
    """What a process does in the fleet."""

    NATS = "nats"
    REDIS = "redis"
    EDS = "eds"
    POD = "pod"
    GATEWAY = "gateway"
    AUTOSCALER = "autoscaler"


class Vital(enum.StrEnum):
    """When the fleet is over because a process cannot run; else it is tried again and again.

    A wrong setting of the autoscaler is worth an error at the start, and not worth the end of a fleet that serves.
    """

    ALWAYS = "always"
    AT_FIRST = "at first"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """One process: how to start it and how to read its end.

    `env` is added to the supervisor's own environment. `fatal_exit` is the exit code after which a restart is
    pointless. `grace` is how many seconds it may take to end after SIGTERM. `vital` says when the fleet ends
    because this cannot run.
    """

    name: str
    role: Role
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    fatal_exit: int | None = SETTINGS_EXIT
    grace: float = 10.0
    vital: Vital = Vital.ALWAYS


@dataclass(frozen=True, slots=True)
class Scaling:
    """That an autoscaler decides the fleet's size, within limits, by a capacity certificate if there is one.

    `measured_threads` are those of each pod that the certificate is of; 0 is not known.
    """

    limits: Limits
    certificate: Path | None = None
    measured_threads: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """Another version of the model, in pods of its own beside the first ones, for a rollout to choose between.

    `threads` are those of each pod as its profile says them; 0: as the others have.
    """

    model_dir: Path
    pods: int
    profile: Path | None = None
    threads: int = 0

    @property
    def source(self) -> Path:
        """What says which version it is: its profile, else its directory."""
        return self.profile or self.model_dir

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The names of its pods."""
        return tuple(f"candidate-{number}" for number in range(1, self.pods + 1))


@dataclass(frozen=True, slots=True)
class Door:
    """A pod's port, and the one by which others reach it, where something stands before the pod."""

    port: int
    advertised: int


@dataclass(frozen=True, slots=True)
class Redis:
    """A Redis for the gateway's limits: which program, on which port."""

    program: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """Everything that decides how a fleet looks. `pods` are those that it begins with.

    Without `engine`, the environment says what computes in them, as it does of all else that is not here.
    `profile` is the model profile that pods, gateway and autoscaler read; `pod_threads` 0 shares out the cores.
    `cold_start` is what it says of that, in seconds, if it does. `figures` is the file that says what a pod can
    do, profile or certificate, and `figures_threads` how many each pod had that they are of; 0 is not known.
    `doors` are of the pods, by name, that have one; `metrics_ports` of the processes that tell metrics by one.
    """

    model: str
    model_dir: Path
    pods: int
    port: int
    nats_port: int
    dtype: str
    cores: int
    rpc_token: str
    nats_token: str
    python: str
    nats_server: str
    state_dir: Path
    scaling: Scaling | None = None
    engine: str = ""
    profile: Path | None = None
    pod_threads: int = 0
    cold_start: float | None = None
    figures: Path | None = None
    figures_threads: int = 0
    candidate: Candidate | None = None
    doors: Mapping[str, Door] = field(default_factory=dict)
    redis: Redis | None = None
    metrics_ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Where the gateway answers."""
        return f"http://{HOST}:{self.port}"

    @property
    def nats_url(self) -> str:
        """Where the services meet."""
        return f"nats://{HOST}:{self.nats_port}"

    @property
    def threads(self) -> int:
        """Threads a pod: the pods share the cores, since two that each use all of them slow each other down.

        Where their number changes, they get what each has in the largest fleet. What a pod can do is then the same
        in a fleet of any size, as the autoscaler takes it to be, and a new pod never takes from the others.
        """
        pods = self.scaling.limits.most if self.scaling else self.pods
        return self.pod_threads or max(1, self.cores // (pods + (self.candidate.pods if self.candidate else 0)))

    @property
    def pod_names(self) -> tuple[str, ...]:
        """The names of the first pods; a restarted pod keeps its own."""
        return tuple(map(pod_name, range(1, self.pods + 1)))


def plan_fleet(options: FleetOptions) -> tuple[ChildSpec, ...]:
    """List the processes that a fleet begins with, in the order in which they start."""
    pods = (_pod(options, name) for name in options.pod_names)
    return (_nats(options), *_redis(options), _eds(options), *pods, *_candidates(options), _gateway(options))


def _candidates(options: FleetOptions) -> tuple[ChildSpec, ...]:
    """Plan the pods of another version: once they have been up, the fleet goes on without them."""
    candidate = options.candidate
    if candidate is None:
        return ()
    version = replace(
        options,
        model_dir=candidate.model_dir,
        profile=candidate.profile,
        pod_threads=candidate.threads or options.pod_threads,
        dtype=AUTO if candidate.profile else options.dtype,
        engine="" if candidate.profile else options.engine,
    )
    return tuple(replace(_pod(version, name), vital=Vital.AT_FIRST) for name in candidate.pod_names)


def plan_pod(options: FleetOptions, name: str) -> ChildSpec:
    """Plan a pod that joins a fleet which serves: should it not come up, those that are there go on."""
    return replace(_pod(options, name), vital=Vital.NEVER)


def plan_autoscaler(options: FleetOptions, scaling: Scaling, cold_start: float) -> ChildSpec:
    """Plan the autoscaler, which is started last: `cold_start` is what the first pods took, in seconds.

    A profile's counts before that: nine of ten pods started within it.
    """
    env = {
        "COPYDESK_AUTOSCALER_NATS_URL": options.nats_url,
        "COPYDESK_AUTOSCALER_NATS_TOKEN": options.nats_token,
        "COPYDESK_AUTOSCALER_ACTUATOR": "local",
        "COPYDESK_AUTOSCALER_MODEL": options.model,
        "COPYDESK_AUTOSCALER_MIN_PODS": str(scaling.limits.least),
        "COPYDESK_AUTOSCALER_MAX_PODS": str(scaling.limits.most),
        "COPYDESK_AUTOSCALER_COLD_START_S": f"{options.cold_start or cold_start:.1f}",
        "COPYDESK_AUTOSCALER_STATE_DIR": str(options.state_dir / "autoscaler"),
    }
    if scaling.certificate is not None:
        env["COPYDESK_AUTOSCALER_CERTIFICATE"] = str(scaling.certificate)
    env |= _profile(options, "AUTOSCALER") | _metrics(options, "autoscaler", "AUTOSCALER")
    argv = _module(options, "autoscaler")
    return ChildSpec("autoscaler", Role.AUTOSCALER, argv, env, grace=5.0, vital=Vital.AT_FIRST)


def model_name(directory: Path) -> str:
    """Name a model after its directory, in the characters that a NATS subject allows."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", directory.resolve().name).strip("-")[:64] or "model"


def _nats(options: FleetOptions) -> ChildSpec:
    store = str(options.state_dir / "nats")
    where = ("--addr", HOST, "--port", str(options.nats_port), "--store_dir", store)
    # Who can write to NATS can name a pod of his own, and gets texts and the pods' token: on a machine with other
    # users, loopback is no protection. The file has nats-server read the token where no other user sees it.
    argv = (options.nats_server, *where, "--config", str(NATS_CONFIG))
    env = {NATS_VARIABLE: json.dumps(options.nats_token)}
    # A Go program that panics exits with 2 as well: for this one it is a crash like any other.
    return ChildSpec("nats", Role.NATS, argv, env, fatal_exit=None, grace=5.0)


def _redis(options: FleetOptions) -> tuple[ChildSpec, ...]:
    if options.redis is None:
        return ()
    where = ("--bind", HOST, "--port", str(options.redis.port), "--dir", str(options.state_dir))
    argv = (options.redis.program, *where, "--save", "", "--appendonly", "no")
    return (ChildSpec("redis", Role.REDIS, argv, fatal_exit=None, grace=5.0),)


def _eds(options: FleetOptions) -> ChildSpec:
    env = {
        "COPYDESK_EDS_NATS_URL": options.nats_url,
        "COPYDESK_EDS_NATS_TOKEN": options.nats_token,
        "COPYDESK_EDS_SOURCE": "heartbeat",
        "COPYDESK_EDS_RPC_TOKEN": options.rpc_token,
        **_metrics(options, "eds", "EDS"),
    }
    return ChildSpec("eds", Role.EDS, _module(options, "eds"), env, grace=5.0)


def _pod(options: FleetOptions, name: str) -> ChildSpec:
    env = {
        "COPYDESK_INFERENCE_POD": name,
        "COPYDESK_INFERENCE_MODEL": options.model,
        "COPYDESK_INFERENCE_MODEL_DIR": str(options.model_dir),
        "COPYDESK_INFERENCE_HOST": HOST,
        **_door(options.doors.get(name)),
        "COPYDESK_INFERENCE_NATS_URL": options.nats_url,
        "COPYDESK_INFERENCE_NATS_TOKEN": options.nats_token,
        "COPYDESK_INFERENCE_THREADS": str(options.threads),
        "COPYDESK_INFERENCE_RPC_TOKEN": options.rpc_token,
        **_metrics(options, name, "INFERENCE"),
        **_profile(options, "INFERENCE"),
    }
    if options.engine:
        env["COPYDESK_INFERENCE_ENGINE"] = options.engine
    if options.profile is None or options.dtype != AUTO:
        env["COPYDESK_INFERENCE_DTYPE"] = options.dtype
    return ChildSpec(name, Role.POD, _module(options, "inference"), env, grace=30.0)


def _door(door: Door | None) -> dict[str, str]:
    if door is None:
        return {"COPYDESK_INFERENCE_PORT": "0"}
    return {
        "COPYDESK_INFERENCE_PORT": str(door.port),
        "COPYDESK_INFERENCE_ADVERTISE_PORT": str(door.advertised),
    }


def _gateway(options: FleetOptions) -> ChildSpec:
    env = {
        "COPYDESK_GATEWAY_HOST": HOST,
        "COPYDESK_GATEWAY_PORT": str(options.port),
        "COPYDESK_GATEWAY_NATS_URL": options.nats_url,
        "COPYDESK_GATEWAY_NATS_TOKEN": options.nats_token,
        "COPYDESK_GATEWAY_MODEL": options.model,
        "COPYDESK_GATEWAY_RPC_TOKEN": options.rpc_token,
        **_profile(options, "GATEWAY"),
    }
    if options.redis is not None:
        env["COPYDESK_GATEWAY_REDIS_URL"] = f"redis://{HOST}:{options.redis.port}/0"
        env["COPYDESK_GATEWAY_LIMIT_REQUESTS_PER_SECOND"] = UNREACHED_LIMIT
    # It answers what it has accepted before it ends; a request's deadline is 60 s.
    return ChildSpec("gateway", Role.GATEWAY, _module(options, "gateway"), env, grace=65.0)


def _profile(options: FleetOptions, service: str) -> dict[str, str]:
    return {} if options.profile is None else {f"COPYDESK_{service}_PROFILE": str(options.profile)}


def _metrics(options: FleetOptions, name: str, service: str) -> dict[str, str]:
    port = options.metrics_ports.get(name)
    return {} if port is None else {f"COPYDESK_{service}_METRICS_PORT": str(port)}


def _module(options: FleetOptions, service: str) -> tuple[str, ...]:
    return (options.python, "-m", f"copydesk.{service}")
