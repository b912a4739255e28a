"""The YAML files that say what is to be scaled, and with which candidates: fields, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from copydesk.autoscaler.plan import PlanError
from copydesk.common.strict_yaml import YamlFileError, read_yaml_file

T = TypeVar("T")


class CandidateEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a candidate does otherwise than the live configuration; what is left out is the same."""

    name: str = "candidate"
    min_pods: int | None = None
    max_pods: int | None = None
    certificate: str | None = None
    cold_start_s: float | None = None
    concurrency: float | None = None
    rate: float | None = None
    rules: dict[str, float] = {}


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model; the fields are the settings of the same names (`workload`: KUBE_WORKLOAD).

    Paths are relative to the file. `cold_start_s` None: what the profile says, or 60 without one.
    """

    model: str
    min_pods: int = 1
    max_pods: int = 8
    certificate: str = ""
    profile: str = ""
    hardware: str = ""
    model_digest: str = ""
    cold_start_s: float | None = None
    concurrency: float = 0.0
    rate: float = 0.0
    slo_ms: float = 1000.0
    image: str = ""
    workload: str = ""
    namespace: str = ""
    rules: dict[str, float] = {}
    candidate: CandidateEntry | None = None


class ModelsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file of `MODELS_FILE`."""

    models: tuple[ModelEntry, ...]


class ShadowFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file of `SHADOW_FILE`: a candidate for each model that has none of its own."""

    candidate: CandidateEntry


def read_yaml(path: Path, type_: type[T], key: str) -> T:
    """Read a file as `type_`; raise `PlanError` for `key` with the place of what is wrong."""
    try:
        content: Any = read_yaml_file(path)
    except YamlFileError as error:
        raise PlanError(key, str(error)) from error
    try:
        return msgspec.convert(content, type_)
    except (msgspec.ValidationError, RecursionError) as error:
        raise PlanError(key, f"{path}: {error}{_known(type_, str(error))}") from error


def _known(type_: type[Any], problem: str) -> str:
    """Name the fields that there are, where one was found that is none."""
    if "unknown field" not in problem:
        return ""
    place = problem.partition(" - at `")[2].rstrip("`")
    if place:
        type_ = CandidateEntry if place.endswith(".candidate") or type_ is ShadowFile else ModelEntry
    return f"; there are {', '.join(type_.__struct_fields__)}"
