"""Which versions of a model there are: by what pods report of themselves."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from copydesk.common.errors import CopydeskError
from copydesk.common.messages import EndpointState, LoadReport

SILENT_SECONDS = 3.0
"""A dozen reports: a pod that is silent for so long is not counted."""

_PREFIX = re.compile(r"(sha256:)?[0-9a-zA-Z]{4,}")


class VersionError(CopydeskError):
    """There are not two versions to choose between, or not those that were named; `hint` says what to do."""

    def __init__(self, problem: str, hint: str) -> None:
        self.hint = hint
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Versions:
    """What a rollout is from and to: digests, and the name that both serve under."""

    model: str
    baseline: str
    candidate: str


class Roster:
    """Who reports what; `now` is in seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str], tuple[float, LoadReport]] = {}

    def hear(self, report: LoadReport, now: float) -> None:
        """Take in what a pod says."""
        self._pods[report.model, report.pod] = now, report

    def models(self, now: float) -> set[str]:
        """Name the models that pods serve."""
        return {report.model for report in self._present(now)}

    def ready(self, model: str, now: float) -> Counter[str]:
        """Count the pods of a model that can take work, by digest."""
        return Counter(
            report.digest
            for report in self._present(now)
            if report.model == model and report.state is EndpointState.READY and report.digest
        )

    def _present(self, now: float) -> list[LoadReport]:
        return [report for heard_at, report in self._pods.values() if now - heard_at <= SILENT_SECONDS]


def find_versions(
    roster: Roster, now: float, *, model: str | None, candidate: str, baseline: str | None
) -> Versions:
    """Find out which two versions are meant, where digests may be shortened; raises `VersionError`."""
    name = model or _only_model(roster.models(now))
    found = roster.ready(name, now)
    if not found:
        raise VersionError(f"no ready pod of {name} is heard", "start a fleet with: copydesk up --candidate DIR")
    new = _match(candidate, found, "candidate")
    if baseline is not None:
        old = _match(baseline, found, "baseline")
    else:
        others = sorted(digest for digest in found if digest != new)
        if len(others) != 1:
            said = ", ".join(short(other) for other in others) or "none"
            raise VersionError(
                f"besides the candidate there has to be one version; there are: {said}", "--baseline"
            )
        old = others[0]
    if old == new:
        raise VersionError("candidate and baseline are the same version", "they need different weights or files")
    return Versions(name, old, new)


def digest_of(what: str) -> str:
    """Return the digest of a profile's or a directory's model; a digest, or its beginning, is returned as it is.

    Raises:
        VersionError: It is none of these.
    """
    from copydesk.common.profile import ProfileError, read_profile
    from copydesk.inference.checkpoint import read_digest
    from copydesk.inference.checkpoint.errors import CheckpointError

    path = Path(what).expanduser()
    try:
        if path.is_dir():
            return read_digest(path)
        if path.is_file():
            return read_profile(path).model.digest
    except (ProfileError, CheckpointError, OSError) as error:
        raise VersionError(str(error), "give a digest, a model's directory or its profile") from error
    if _PREFIX.fullmatch(what) is None:
        raise VersionError(f"{what!r} is no digest, directory or profile", "copydesk status --json shows digests")
    return what


def short(digest: str) -> str:
    """Return as much of a digest as people need."""
    return digest.removeprefix("sha256:")[:12]


def _only_model(models: set[str]) -> str:
    if not models:
        raise VersionError("no pod is heard", "start a fleet with: copydesk up --candidate DIR")
    if len(models) > 1:
        raise VersionError(f"there are several models: {', '.join(sorted(models))}", "choose one with --model")
    return next(iter(models))


def _match(wanted: str, found: Counter[str], what: str) -> str:
    bare = wanted.removeprefix("sha256:")
    matching = [digest for digest in found if digest.removeprefix("sha256:").startswith(bare)]
    if len(matching) == 1:
        return matching[0]
    there = ", ".join(f"{short(digest)} ({count} pods)" for digest, count in sorted(found.items()))
    problem = "is run by no ready pod" if not matching else "fits several versions"
    raise VersionError(f"the {what} {short(wanted)} {problem}; there are: {there}", f"say which by --{what}")
