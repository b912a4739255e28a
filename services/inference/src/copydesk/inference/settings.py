"""The settings of a pod: environment variables that start with `COPYDESK_INFERENCE_`."""

from __future__ import annotations

import enum
import os
import re
from pathlib import Path
from typing import Any, Self

import msgspec
from pydantic import Field, SecretStr, ValidationInfo, field_validator, model_validator

from copydesk.common.hosts import is_loopback
from copydesk.common.messages import subject_token
from copydesk.common.profile import Profile
from copydesk.common.profiled_settings import ProfiledSettings
from copydesk.common.settings import variable_name
from copydesk.common.tls.settings import NatsTlsSettings, RpcTlsSettings

ENVIRONMENT_PREFIX = "COPYDESK_INFERENCE_"


_DEVICE = re.compile(r"cpu|cuda(:\d+)?|null(-async)?:\d+(\.\d+)?", re.ASCII)


class Dtype(enum.StrEnum):
    """The arithmetic of the engine; `auto` is the fastest that the processor has instructions for."""

    AUTO = "auto"
    FP8 = "fp8"
    INT8 = "int8"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


class EngineKind(enum.StrEnum):
    """Whose engine a pod runs."""

    NATIVE = "native"
    VLLM = "vllm"


class Draft(enum.StrEnum):
    """Whether the engine guesses the tokens to come and verifies several in one pass."""

    AUTO = "auto"
    OFF = "off"


class Core(enum.StrEnum):
    """What schedules the engine's steps."""

    AUTO = "auto"
    COMPILED = "compiled"
    PYTHON = "python"


class LogLevel(enum.StrEnum):
    """The least severe event that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class InferenceSettings(RpcTlsSettings, NatsTlsSettings, ProfiledSettings, env_prefix=ENVIRONMENT_PREFIX):
    """What a pod serves, where, and how much of the machine it takes. Times are in milliseconds."""

    profile: Path | None = Field(
        default=None,
        description="Model profile (YAML) that says the model, its directory and digest, DTYPE and the engine's "
        "settings, where no variable says otherwise; none by default, since most models have none.",
    )
    model: str = Field(
        default="gec-en",
        description="Name of the model, as gateways ask for it; gec-en is the model that Copydesk comes with.",
    )
    model_dir: Path = Field(
        description="Hugging Face directory of the model (config.json, tokenizer.json, *.safetensors). There is "
        "no default, since a pod without a model serves nothing.",
    )
    model_digest: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        description="Digest that the model must have, as copydesk model prepare prints it; with another, a pod "
        "does not start. Empty: any model will do.",
    )
    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on; loopback, as any other needs RPC_TOKEN or certificates.",
    )
    advertise_host: str = Field(
        default="",
        description="Host that gateways connect to. Empty: HOST, or this machine's name where HOST is a wildcard.",
    )
    port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="TCP port for gateways. 0 takes a free one, which load reports then tell.",
    )
    advertise_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="TCP port that gateways connect to, where a proxy or a mapped port stands before the pod. 0: "
        "the one that it listens on.",
    )
    pod: str = Field(
        default="",
        description="Name of this pod, unique in the fleet. Empty: the machine's name and the port.",
    )
    zone: str = Field(
        default="",
        description="Failure zone of this pod, so that gateways can prefer their own; empty where there are none.",
    )
    nats_url: str = Field(
        default="nats://127.0.0.1:4222",
        description="Where load reports go: the default port of a NATS server on this machine.",
    )
    nats_token: SecretStr = Field(
        default=SecretStr(""),
        description="Token for NATS; empty by default, as a local server asks for none.",
    )
    threads: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Threads of the engine's arithmetic, shared out among ENGINES, at least one each. 0: one for "
        "each core that this process may run on; pods that share a machine should share its cores.",
    )
    engine: EngineKind = Field(
        default=EngineKind.NATIVE,
        description="What computes: native or vllm. native is Copydesk's own engine: less memory, a start in "
        "seconds, and drafts from the sentence. vllm is vLLM, in an environment of its own, for models and "
        "kernels that the native one does not have.",
    )
    dtype: Dtype = Field(
        default=Dtype.AUTO,
        description="Arithmetic of the engine: auto, fp8, int8, bfloat16 or float32. auto: int8 on a CPU with "
        "AMX, AVX-512 VNNI or AVX2 (several times as fast as bfloat16 and half its memory, and an answer never "
        "depends on what else runs); fp8 on a GPU that has it, of a checkpoint in FP8; else bfloat16 where that "
        "is fast, else float32. A checkpoint in FP8 or INT8 is served in all of them but fp8, which needs one in "
        "FP8. fp8 on a CPU is emulated, slow: it is for judging the answers that a GPU will give.",
    )
    device: str = Field(
        default="cpu",
        description="What the engine computes on: cpu, cuda or cuda:N; several, with commas, are dealt out to "
        "ENGINES in turn. null:MS computes nothing, in MS milliseconds a step, and answers with noise: it "
        "measures what all else costs. null-async:MS does so beside the engine, as an accelerator does.",
    )
    engines: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Engine processes, one for each device or several on one, each with its own SLOTS and QUEUE. "
        "One makes the most of a CPU. Packed 8-bit weights are shared between them; with torch each loads its "
        "own.",
    )
    core: Core = Field(
        default=Core.AUTO,
        description="What schedules steps: auto, compiled or python. auto: the compiled one where g++ is to be "
        "had, since it leaves the processor to the model; python is for comparison.",
    )
    asynchronous: bool = Field(
        default=True,
        description="Whether a step begins before the results of the last one are dealt with; false is for "
        "comparison.",
    )
    graphs: int = Field(
        default=256,
        ge=0,
        le=4096,
        description="CUDA graphs that an engine on a GPU captures at its start, at most: a step then takes one "
        "launch instead of hundreds. The default is enough for 64 slots of 512 tokens; 0 captures none.",
    )
    draft: Draft = Field(
        default=Draft.AUTO,
        description="Whether the engine drafts tokens from the sentence or from what it has read, and verifies "
        "several in one pass: auto or off. auto: as many as the load lets it, which shortens every answer; off is "
        "for comparison.",
    )
    draft_tokens: int = Field(
        default=192,
        ge=1,
        le=4096,
        description="Tokens of a step that drafts may fill up, over all requests of an engine; on two cores, no "
        "other number than 192 served 1 or 64 requests much faster.",
    )
    slots: int = Field(
        default=32,
        ge=1,
        le=1024,
        description="Requests that run side by side in an engine. On two cores, more than 32 make each of them "
        "slower without finishing more in total.",
    )
    context: int = Field(
        default=512,
        ge=8,
        le=131072,
        description="Tokens of one request, prompt and answer together; a sentence of 50 tokens needs about 130, "
        "and memory for the cache grows with it.",
    )
    cache_tokens: int = Field(
        default=0,
        ge=0,
        le=1 << 20,
        description="Tokens whose keys and values an engine may have to keep at once, over all SLOTS; requests "
        "that might need more wait for others to end, and one of CONTEXT always fits. 0: with int8 half of SLOTS "
        "times CONTEXT, which is plenty for sentences and keeps a pod with the default model below 700 MB; else "
        "all of it.",
    )
    queue: int = Field(
        default=256,
        ge=0,
        le=65536,
        description="Requests that may wait for a slot of an engine; what comes after them is refused at once. "
        "The default is eight rounds of the slots, more than a patient deadline allows.",
    )
    vllm_python: str = Field(
        default="",
        description="Interpreter of the environment in which vLLM is installed; with ENGINE=vllm, engine "
        "processes are started with it. Empty: the pod's own, for images in which all is one environment.",
    )
    vllm_gpu_memory: float = Field(
        default=0.9,
        gt=0.0,
        le=1.0,
        description="Share of a GPU's memory that vLLM takes for weights, cache and graphs, unless CACHE_TOKENS "
        "sizes the cache. 0.9 is its own default; several ENGINES on one GPU need shares that fit together.",
    )
    vllm_eager: bool = Field(
        default=False,
        description="Whether vLLM computes without compiling first: a start takes a minute less, or several the "
        "first time, and every step more. False, since pods start seldom.",
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that tokenise and talk to gateways. One keeps up with an engine on a CPU.",
    )
    rpc_token: SecretStr = Field(
        default=SecretStr(""),
        description="Secret that gateways must show, one of several where there are several lines; empty asks for "
        "none, on loopback only.",
    )
    metrics_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="Port of /metrics, /healthz and /readyz, on HOST; 0 is off, so that pods on one machine do "
        "not clash.",
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO,
        description="Least severe event that is logged: debug, info, warning or error.",
    )
    report_interval_ms: int = Field(
        default=250,
        ge=10,
        le=10_000,
        description="Time between load reports, and between pings of the pod's own processes. Autoscaler and "
        "discovery count on 250.",
    )
    start_timeout_ms: int = Field(
        default=600_000,
        ge=100,
        description="How long a process of the pod may take to load its part of the model before it counts as "
        "hung; large checkpoints on a slow disk take minutes.",
    )
    answer_timeout_ms: int = Field(
        default=5_000,
        ge=100,
        description="How long a process of the pod may leave pings unanswered before it is killed and restarted. "
        "Long enough for a machine that is short of time, short enough for people who wait.",
    )
    step_timeout_ms: int = Field(
        default=60_000,
        ge=100,
        description="How long one step of the engine may take before the engine counts as hung and is restarted; "
        "no honest step comes near it.",
    )
    drain_timeout_ms: int = Field(
        default=25_000,
        ge=0,
        description="How long accepted requests may still take once the pod is told to end; below the 30 s that "
        "Kubernetes grants.",
    )

    @model_validator(mode="after")
    def _is_guarded(self) -> Self:
        guarded = self.rpc_token.get_secret_value().strip() or self.rpc_tls_files() is not None
        if not is_loopback(self.host) and not guarded:
            host, token, certificate = (
                variable_name(type(self), name) for name in ("host", "rpc_token", "rpc_tls_cert_file")
            )
            raise ValueError(
                f"{host}={self.host} can be reached from other machines, and anybody there could use the pod: "
                f"set {token} or {certificate}, or listen on 127.0.0.1"
            )
        return self

    @field_validator("model", "pod")
    @classmethod
    def _stands_in_a_subject(cls, name: str) -> str:
        return subject_token(name) if name else name

    @field_validator("model")
    @classmethod
    def _is_named(cls, name: str) -> str:
        if not name:
            raise ValueError("expected the name of a model")
        return name

    @field_validator("device")
    @classmethod
    def _names_devices(cls, device: str) -> str:
        if not all(_DEVICE.fullmatch(name) for name in device.split(",")):
            raise ValueError("expected cpu, cuda, cuda:N, null:MS or null-async:MS, with commas between several")
        return device

    @field_validator("engines")
    @classmethod
    def _one_for_each_device(cls, engines: int, info: ValidationInfo) -> int:
        devices = str(info.data.get("device", "")).count(",") + 1
        if engines < devices:
            raise ValueError(f"expected {devices} or more, since DEVICE names that many")
        return engines

    @classmethod
    def said_by(cls, profile: Profile, path: Path) -> dict[str, Any]:
        """Return what a profile says of a pod."""
        engine = {key: value for key, value in msgspec.structs.asdict(profile.engine).items() if value is not None}
        if "draft" in engine:
            engine["draft"] = (Draft.AUTO if engine["draft"] else Draft.OFF).value
        return {
            "model": profile.model.name,
            "model_dir": profile.model_directory(path),
            "model_digest": profile.model.digest,
            "dtype": profile.precision.dtype,
            **engine,
        }

    def thread_count(self) -> int:
        """Return the number of the engines' threads, with 0 resolved to the cores of this process."""
        return self.threads or len(os.sched_getaffinity(0))

    def engine_names(self) -> list[str]:
        """Return the names of the engine processes."""
        return [f"engine-{index}" for index in range(self.engines)]

    def engine_threads(self, index: int) -> int:
        """Return an engine's share of the threads: even, the first ones get what is left over, none gets none."""
        each, left_over = divmod(self.thread_count(), self.engines)
        return max(1, each + (index < left_over))

    def engine_device(self, index: int) -> str:
        """Return what an engine computes on: DEVICE dealt out in turn."""
        devices = self.device.split(",")
        return devices[index % len(devices)]
