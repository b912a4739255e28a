"""The gateway's settings."""

from __future__ import annotations

import os
import re
import socket
import zlib
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from copydesk.common.hosts import is_loopback
from copydesk.common.messages import subject_token
from copydesk.common.profile import Profile
from copydesk.common.profiled_settings import ProfiledSettings
from copydesk.common.settings import variable_name
from copydesk.common.tls.settings import NatsTlsSettings, RpcClientTlsSettings
from copydesk.gateway.balancing import Balancing
from copydesk.gateway.http.origins import Origins, usable_origins
from copydesk.gateway.keys import KeyLimits
from copydesk.gateway.lane.native import Core
from copydesk.gateway.limits import Limits
from copydesk.gateway.redis_link import redis_url as usable_redis_url
from copydesk.routing import OutlierRules

LONGEST_MS = 86_400_000
"""The most milliseconds of any setting, a day: beyond it is a slip of the keyboard, and at some point no timer."""

MOST = 1_000_000_000
"""The most of anything that is counted. It is far beyond use; what is larger would end in the middle of work."""


_NO_TOKEN = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


def process_name(machine: str, process: int) -> str:
    """Return a name for a process of a machine that can stand in a subject; no two of a machine have the same."""
    suffix = f"-{process}"
    room = _LONGEST_NAME - len(suffix)
    name = _NO_TOKEN.sub("-", machine)
    if len(name) > room:
        name = f"{name[: room - 9]}-{zlib.crc32(machine.encode()):08x}"
    return name + suffix


def _token_or_none(name: str) -> str:
    return name and subject_token(name)


def _file_in_a_folder(path: Path | None) -> Path | None:
    """Return what names a file that may be made: found out at the start, not when there is something to keep."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise ValueError("expected a file in a directory that is there")
    return path


class GatewaySettings(RpcClientTlsSettings, NatsTlsSettings, ProfiledSettings, env_prefix="COPYDESK_GATEWAY_"):
    """Everything that can be set, each with its unit and the reason for its default."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="address to listen on; loopback, because keys are off"
    )
    port: int = Field(default=8080, ge=0, le=65535, description="TCP port of the REST API; 0 takes a free one")
    api_keys_file: Path | None = Field(
        default=None,
        description="file of API keys, one 'name:sha256-hex' a line; none by default, so only loopback is served",
    )
    cors_origins: Annotated[str, AfterValidator(usable_origins)] = Field(
        default="",
        description=(
            "origins whose pages may use the APIs from a browser, separated by commas, as in "
            "https://editor.example,http://localhost:3000; * is all. None by default, since without keys any page "
            "that somebody here opens could use the fleet"
        ),
    )
    nats_url: str = Field(default="nats://127.0.0.1:4222", description="NATS server that carries the list of pods")
    nats_token: SecretStr = Field(
        default=SecretStr(""), description="token for NATS; empty because the local one asks none"
    )
    model: Annotated[str, AfterValidator(subject_token)] = Field(
        default="gec-en", description="name of the model served"
    )
    profile: Path | None = Field(
        default=None,
        description="model profile (YAML) that says MODEL and MODEL_DIGEST, where no variable says otherwise; "
        "none by default, since most models have none",
    )
    model_digest: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="digest of the weights that pods should run; of a pod that reports another, a log line and a "
        "metric tell, and it is used all the same. Empty: any will do",
    )
    name: Annotated[str, AfterValidator(_token_or_none)] = Field(
        default="",
        description="name under which this process tells the autoscaler what there is to do, 1 to 64 letters, "
        "digits, '_' or '-', one of its own for each process; empty: machine and process id",
    )
    rpc_token: SecretStr = Field(
        default=SecretStr(""),
        description="token that pods ask for; of several lines the first; empty on one machine",
    )
    log_level: Literal["debug", "info", "warning", "error", "critical"] = Field(
        default="info",
        description="least severe log line written; info shows changes of the fleet, not each request",
    )
    core: Core = Field(
        default="auto",
        description=(
            "what serves the requests that come most often: auto, compiled or python. auto: the compiled module "
            "where there is one or it can be built, since it takes far less of the processor, else Python; "
            "compiled refuses to start without it; python is for comparison"
        ),
    )

    deadline_ms: int = Field(
        default=60_000,
        ge=1,
        le=LONGEST_MS,
        description="milliseconds a request may take unless it says so itself; what HTTP clients wait",
    )
    max_deadline_ms: int = Field(
        default=600_000,
        ge=1,
        le=LONGEST_MS,
        description="most milliseconds a request may ask for; ten minutes, so that none holds on for ever",
    )
    max_body_bytes: int = Field(
        default=256 * 1024,
        ge=1024,
        le=MOST,
        description="most bytes of a body; 20,000 characters fit even when all are escaped",
    )
    max_characters: int = Field(
        default=20_000,
        ge=1,
        le=MOST,
        description="most characters in all texts of a request; about 200 sentences, some seconds' work",
    )
    max_texts: int = Field(
        default=256,
        ge=1,
        le=MOST,
        description="most texts of a request; about one a sentence within the characters",
    )
    max_sentence_characters: int = Field(
        default=500,
        ge=16,
        le=MOST,
        description="characters after which a sentence is cut; the model was trained on sentences, not pages",
    )
    request_concurrency: int = Field(
        default=32,
        ge=1,
        le=MOST,
        description="most sentences of one request in flight; fills a pod's batch, leaves room for others",
    )
    body_timeout_ms: int = Field(
        default=10_000,
        ge=1,
        le=LONGEST_MS,
        description="milliseconds for a body to arrive; 256 KiB in that time is a slow modem's pace",
    )
    endpoint_wait_ms: int = Field(
        default=1_000,
        ge=0,
        le=LONGEST_MS,
        description="milliseconds to wait for a ready pod before 503; covers a reconnect, not a cold start",
    )
    connect_timeout_ms: int = Field(
        default=2_000, ge=1, le=LONGEST_MS, description="milliseconds to connect to a pod; far above any LAN's"
    )
    keepalive_ms: int = Field(
        default=1_000,
        ge=10,
        le=LONGEST_MS,
        description="milliseconds without an answer after which a pod is pinged; keeps its load fresh (3 s)",
    )
    keepalive_timeout_ms: int = Field(
        default=5_000,
        ge=10,
        le=LONGEST_MS,
        description="milliseconds for a ping's answer before the connection counts as lost; machines stall",
    )
    retry_ratio: float = Field(
        default=0.1,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="retries allowed as a share of requests; more would double an overload",
    )
    retry_floor: float = Field(
        default=10.0,
        ge=0,
        le=MOST,
        allow_inf_nan=False,
        description="retries a second allowed on top; a quiet gateway must be able to retry at all",
    )
    identity: str = Field(
        default="",
        description="name of this process among the gateways, which decides which pods it uses; empty: machine "
        "and process id. Names that end in 0, 1, 2 and so on cover the fleet most evenly",
    )
    zone: str = Field(
        default="",
        description="failure zone of this gateway, whose pods it prefers; empty where there are none",
    )
    aperture: int = Field(
        default=32,
        ge=1,
        le=MOST,
        description="most pods this process connects to; each connection costs, and 32 balance as well as all",
    )
    zone_spillover: float = Field(
        default=1.5,
        ge=1,
        le=MOST,
        allow_inf_nan=False,
        description="how many times busier than other zones' pods those of this zone may be before others are "
        "used; another zone costs a millisecond, a busy pod half a request",
    )
    slow_start_ms: int = Field(
        default=10_000,
        ge=0,
        le=LONGEST_MS,
        description="milliseconds until a new pod gets its full share; caches fill within seconds of use",
    )
    eject_failures: int = Field(
        default=5,
        ge=1,
        le=MOST,
        description="failures in a row that eject a pod; five are no accident, and back-pressure is none",
    )
    eject_silence_ms: int = Field(
        default=500,
        ge=10,
        le=LONGEST_MS,
        description="milliseconds without any answer, while others answer, that eject a pod; a hang must show "
        "within two seconds. Twice the fleet's P99 where that is more",
    )
    eject_latency_ratio: float = Field(
        default=5.0,
        gt=1,
        le=MOST,
        allow_inf_nan=False,
        description="times the fleet's median latency that eject a pod; up to that it is enough that it gets less",
    )
    eject_ms: int = Field(
        default=2_000,
        ge=1,
        le=LONGEST_MS,
        description="milliseconds of the first ejection, doubled with each further one; a restart's time",
    )
    eject_max_ms: int = Field(
        default=60_000,
        ge=1,
        le=LONGEST_MS,
        description="most milliseconds of an ejection; a pod that has recovered must not be lost for long",
    )
    hedge: bool = Field(
        default=False,
        description="whether a sentence that takes longer than 95 % of them is sent to a second pod too, within "
        "the budget of retries; off, since it adds load where there may be no room for it",
    )
    overcommit: float = Field(
        default=1.25,
        ge=1,
        le=1_000,
        allow_inf_nan=False,
        description="sentences at the pods as a multiple of what they run at once; some more, so that none idles",
    )
    queue: int = Field(
        default=512,
        ge=0,
        le=MOST,
        description="most sentences that wait here when the pods are full, the rest is refused, batch work first; "
        "some seconds' work of a small fleet",
    )
    api_keys_redis: bool = Field(
        default=False,
        description=("whether keys are also read from Redis, hash copydesk:keys; off, because it needs one"),
    )
    api_keys_refresh_ms: int = Field(
        default=2_000,
        ge=10,
        le=LONGEST_MS,
        description="milliseconds between looks at the keys; how long a new one waits and a removed one lives on",
    )
    limit_requests_per_second: float | None = Field(
        default=None,
        ge=0.001,
        le=100_000,
        allow_inf_nan=False,
        description="requests a second that a key may make on average unless it says so itself; none: any number",
    )
    limit_burst: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="requests that a key may make at once within that rate; none: one second's worth",
    )
    limit_concurrency: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description=(
            "requests that a key may have underway on this process at once unless it says so itself; none: any "
            "number"
        ),
    )
    redis_url: Annotated[SecretStr, AfterValidator(usable_redis_url)] = Field(
        default=SecretStr(""),
        description=(
            "Redis that counts rates for all gateways, as redis://, rediss:// or unix://; empty: each process "
            "counts by itself"
        ),
    )
    redis_timeout_ms: int = Field(
        default=100,
        ge=1,
        le=LONGEST_MS,
        description="milliseconds that Redis may take; a tenth of the second within which people want an answer",
    )
    redis_lost: Literal["open", "closed"] = Field(
        default="open",
        description=(
            "what becomes of rates while Redis is lost: open, each process counts by itself; closed, limited keys "
            "get 503. Open, so that Redis is no condition for serving"
        ),
    )
    share_sentences: bool = Field(
        default=True,
        description=(
            "whether a sentence that is underway already is waited for, not sent again; on, because it costs "
            "nothing"
        ),
    )
    cache: Literal["off", "memory", "redis"] = Field(
        default="off",
        description=(
            "where corrections are remembered: off, memory (of this process), redis (behind the memory); off, "
            "because it keeps what people wrote"
        ),
    )
    cache_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=0,
        le=1_000 * MOST,
        description="most bytes of memory for remembered corrections; about 150,000 sentences. 0: Redis only",
    )
    cache_ttl_s: int = Field(
        default=86_400,
        ge=1,
        le=MOST,
        description="seconds for which Redis keeps a correction; a day, since people come back to a text",
    )
    rollout_examples_file: Annotated[Path | None, AfterValidator(_file_in_a_folder)] = Field(
        default=None,
        description=(
            "file to which sentences are added that the candidate of a rollout would answer differently, with "
            "both answers, a JSON object a line; none by default, since it keeps what people wrote"
        ),
    )
    rollout_examples_limit: int = Field(
        default=100,
        ge=1,
        le=MOST,
        description=(
            "most sentences of each rollout that one process adds to ROLLOUT_EXAMPLES_FILE; as many as a person "
            "reads"
        ),
    )
    drain_grace_ms: int = Field(
        default=250,
        ge=0,
        le=LONGEST_MS,
        description="milliseconds of answering idle connections with 'close' after SIGTERM, before closing them",
    )
    shutdown_timeout_ms: int = Field(
        default=60_000,
        ge=0,
        le=LONGEST_MS,
        description="milliseconds to finish accepted requests after SIGTERM; the default deadline",
    )

    @model_validator(mode="after")
    def _redis_is_there(self) -> Self:
        if (self.api_keys_redis or self.cache == "redis") and not self.redis_url.get_secret_value():
            names = [variable_name(type(self), name) for name in ("redis_url", "api_keys_redis", "cache")]
            raise ValueError(f"{names[0]} is needed for {names[1]}=true and {names[2]}=redis, and it is not set")
        return self

    @classmethod
    def said_by(cls, profile: Profile, path: Path) -> dict[str, Any]:
        """Return what a profile says of a gateway."""
        return {"model": profile.model.name, "model_digest": profile.model.digest}

    @property
    def key_limits(self) -> KeyLimits:
        """What a key may do that does not say so itself."""
        return KeyLimits(
            requests_per_second=self.limit_requests_per_second,
            burst=self.limit_burst,
            concurrency=self.limit_concurrency,
        )

    @property
    def asks_for_keys(self) -> bool:
        """Whether clients need an API key."""
        return self.api_keys_file is not None or self.api_keys_redis

    @property
    def origins(self) -> Origins:
        """Which pages of other origins are let in."""
        return Origins(self.cors_origins)

    @property
    def limits(self) -> Limits:
        """The limits of one request."""
        return Limits(self.max_body_bytes, self.max_characters, self.max_texts, self.max_deadline_ms)

    @property
    def gateway_name(self) -> str:
        """The name of this process."""
        return self.name or process_name(socket.gethostname(), os.getpid())

    @property
    def balancing(self) -> Balancing:
        """How to balance."""
        return Balancing(
            identity=self.identity or f"{socket.gethostname()}-{os.getpid()}",
            zone=self.zone,
            aperture=self.aperture,
            spillover=self.zone_spillover,
            slow_start=self.slow_start_ms / 1000,
            overcommit=self.overcommit,
            queue=self.queue,
            hedge=self.hedge,
            outliers=OutlierRules(
                failures=self.eject_failures,
                patience=self.eject_silence_ms / 1000,
                slow_ratio=self.eject_latency_ratio,
                first=self.eject_ms / 1000,
                longest=self.eject_max_ms / 1000,
            ),
        )

    @property
    def loopback(self) -> bool:
        """Whether `host` can be reached from this machine only; a name other than localhost counts as not."""
        return is_loopback(self.host)
