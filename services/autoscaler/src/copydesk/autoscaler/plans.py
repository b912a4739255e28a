"""From settings, files and certificates to plans; what cannot be kept is refused, by the key that is wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from copydesk.autoscaler.capacity import Capacity
from copydesk.autoscaler.limits import Limits, LimitsError
from copydesk.autoscaler.log_entry import DRY, LIVE
from copydesk.autoscaler.models_file import CandidateEntry, ModelEntry, ModelsFile, ShadowFile, read_yaml
from copydesk.autoscaler.plan import CapacitySource, Configuration, Plan, PlanError
from copydesk.autoscaler.rules import LEAST_SHARE, Rules
from copydesk.autoscaler.settings import AutoscalerSettings
from copydesk.common.messages import InvalidNameError, subject_token
from copydesk.common.profile import CapacityPart, Profile, ProfileError, read_profile
from copydesk.loadtest.certificate import CertificateError, read_certificate

MOST_PODS = 10_000
LEAST_ASSUMED = 0.001
COLD_START_S = 60.0
LONGEST_SLO_MS = 600_000.0


def load_plans(settings: AutoscalerSettings) -> tuple[Plan, ...]:
    """Return a plan for each model; raise `PlanError`."""
    shadow = None
    if settings.shadow_file is not None:
        found = read_yaml(settings.shadow_file, ShadowFile, "SHADOW_FILE").candidate
        place = _Place("SHADOW_FILE", f"{settings.shadow_file}: candidate.", settings.shadow_file.parent)
        shadow = (found, place)
    if settings.models_file is None:
        return (_plan(_single(settings), _Place(), shadow),)
    entries = read_yaml(settings.models_file, ModelsFile, "MODELS_FILE").models
    names = [entry.model for entry in entries]
    if not names or len(set(names)) < len(names):
        raise PlanError("MODELS_FILE", f"{settings.models_file}: expected one or more models, each named once")
    folder = settings.models_file.parent
    return tuple(
        _plan(entry, _Place("MODELS_FILE", f"{settings.models_file}: models[{number}].", folder), shadow)
        for number, entry in enumerate(entries)
    )


def _single(settings: AutoscalerSettings) -> ModelEntry:
    return ModelEntry(
        model=settings.model,
        min_pods=settings.min_pods,
        max_pods=settings.max_pods,
        certificate=str(settings.certificate or ""),
        profile=str(settings.profile or ""),
        hardware=settings.hardware,
        model_digest=settings.model_digest,
        cold_start_s=settings.cold_start_s,
        concurrency=settings.concurrency,
        rate=settings.rate,
        slo_ms=settings.slo_ms,
        image=settings.image,
        workload=settings.kube_workload,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry stands: in the file of the setting `file_key`, after `prefix`; "" for settings themselves."""

    file_key: str = ""
    prefix: str = ""
    folder: Path = Path()

    def error(self, key: str, problem: str) -> PlanError:
        return PlanError(
            self.file_key or key.upper(), f"{self.prefix}{key}: {problem}" if self.file_key else problem
        )

    def inside(self, key: str) -> _Place:
        return replace(self, prefix=f"{self.prefix}{key}.")


def _plan(entry: ModelEntry, place: _Place, shadow: tuple[CandidateEntry, _Place] | None) -> Plan:
    try:
        subject_token(entry.model)
    except InvalidNameError as error:
        raise place.error("model", str(error)) from error
    profile = _profile(entry, place)
    capacity = None if profile is None or entry.certificate else profile.capacity
    if profile is not None:
        entry = _filled_in(entry, profile)
    live = Configuration(
        limits=_limits(entry.min_pods, entry.max_pods, place),
        rules=_rules(COLD_START_S if entry.cold_start_s is None else entry.cold_start_s, entry.rules, place),
        source=_source(entry, place, capacity),
    )
    given = (entry.candidate, place.inside("candidate")) if entry.candidate is not None else shadow
    return Plan(
        model=entry.model,
        live=live,
        candidate=None if given is None else _candidate(given[0], given[1], entry, live),
        image=entry.image,
        workload=entry.workload,
        namespace=entry.namespace,
    )


def _profile(entry: ModelEntry, place: _Place) -> Profile | None:
    if not entry.profile:
        return None
    path = place.folder / Path(entry.profile).expanduser()
    try:
        profile = read_profile(path)
        profile.require(str(path), model=entry.model, digest=entry.model_digest, hardware=entry.hardware)
    except ProfileError as error:
        raise place.error("profile", str(error)) from error
    return profile


def _filled_in(entry: ModelEntry, profile: Profile) -> ModelEntry:
    """Let the profile say what the entry does not. Its target is the most that a pod is loaded with."""
    rules = entry.rules
    if profile.capacity is not None and not entry.certificate:
        share = max(LEAST_SHARE, profile.capacity.target_concurrency / profile.capacity.concurrency)
        rules = {"most_share": share, "least_share": min(Rules().least_share, share), **rules}
    return msgspec.structs.replace(
        entry,
        model_digest=entry.model_digest or profile.model.digest,
        cold_start_s=profile.cold_start_seconds if entry.cold_start_s is None else entry.cold_start_s,
        rules=rules,
    )


def _candidate(given: CandidateEntry, place: _Place, entry: ModelEntry, live: Configuration) -> Configuration:
    if given.name in ("", LIVE, DRY) or not given.name.isprintable() or len(given.name) > 64:
        raise place.error("name", f"{given.name!r}: expected a name of its own, of 64 characters at most")
    return Configuration(
        given.name,
        _limits(
            live.limits.min_pods if given.min_pods is None else given.min_pods,
            live.limits.max_pods if given.max_pods is None else given.max_pods,
            place,
        ),
        _rules(
            live.rules.cold_start_s if given.cold_start_s is None else given.cold_start_s,
            {**entry.rules, **given.rules},
            place,
        ),
        _other_source(given, place, entry, live.source),
    )


def _other_source(given: CandidateEntry, place: _Place, entry: ModelEntry, live: CapacitySource) -> CapacitySource:
    if given.certificate is None and given.concurrency is None and given.rate is None:
        return live
    merged = ModelEntry(
        model=entry.model,
        hardware=entry.hardware,
        model_digest=entry.model_digest,
        certificate=given.certificate or "",
        concurrency=given.concurrency or 0.0,
        rate=given.rate or 0.0,
        slo_ms=live.slo_ms,
    )
    return _source(merged, place)


def _source(entry: ModelEntry, place: _Place, profiled: CapacityPart | None = None) -> CapacitySource:
    for key, value in (("concurrency", entry.concurrency), ("rate", entry.rate)):
        if value != 0.0 and not LEAST_ASSUMED <= value <= 1e6:
            raise place.error(key, f"{value}: expected {LEAST_ASSUMED} to 1,000,000, or 0 for what is usual")
    if not 1.0 <= entry.slo_ms <= LONGEST_SLO_MS:
        raise place.error("slo_ms", f"{entry.slo_ms}: expected 1 to {LONGEST_SLO_MS:,.0f}")
    if profiled is not None:
        if entry.concurrency or entry.rate:
            raise place.error(
                "profile", "since it says what a pod can do, neither concurrency nor rate is assumed"
            )
        path = str(place.folder / Path(entry.profile).expanduser())
        return CapacitySource(Capacity.profiled(profiled), path, entry.model_digest, slo_ms=profiled.objective_ms)
    if not entry.certificate:
        return CapacitySource(concurrency=entry.concurrency, rate=entry.rate, slo_ms=entry.slo_ms)
    if entry.concurrency or entry.rate:
        raise place.error("certificate", "with a certificate, neither concurrency nor rate is assumed")
    path = str(place.folder / Path(entry.certificate).expanduser())
    try:
        certificate = read_certificate(Path(path))
        certificate.require(path, model=entry.model, model_digest=entry.model_digest, hardware=entry.hardware)
    except CertificateError as error:
        raise place.error("certificate", str(error)) from error
    return CapacitySource(Capacity.of(certificate), path, certificate.model_digest, slo_ms=certificate.slo_ms)


def _limits(least: int, most: int, place: _Place) -> Limits:
    if most > MOST_PODS:
        raise place.error("max_pods", f"{most}: expected {MOST_PODS} or fewer")
    try:
        return Limits(least, most)
    except LimitsError as error:
        raise place.error(error.key, f"{error.value}: {error.reason}") from error


def _rules(cold_start_s: float, changes: dict[str, float], place: _Place) -> Rules:
    known = {one.name: one.type for one in fields(Rules) if one.name != "cold_start_s"}
    unknown = sorted(changes.keys() - known.keys())
    if unknown:
        raise place.error("rules", f"{unknown[0]} is no rule; there are {', '.join(sorted(known))}")
    values: dict[str, Any] = {
        key: int(value) if known[key] == "int" and math.isfinite(value) else value
        for key, value in changes.items()
    }
    try:
        return Rules(cold_start_s=cold_start_s, **values)
    except LimitsError as error:
        key = error.key if error.key == "cold_start_s" else f"rules.{error.key}"
        raise place.error(key, f"{error.value}: {error.reason}") from error
