"""What a search for a capacity knows so far, as a file from which it can go on."""

from __future__ import annotations

from pathlib import Path

import msgspec

from copydesk.common.errors import CopydeskError
from copydesk.common.whole_file import replace_file
from copydesk.loadtest.certificate import Hardware, digest_of
from copydesk.loadtest.ground import Scouted, Timing
from copydesk.loadtest.search import Scope
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Rules

VERSION = 1


class RecordError(CopydeskError):
    """A record that cannot be written, read or gone on from: `path`, and why."""

    exit_code = 2

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured: the fleet at a URL, with its model, configuration, number of pods and hardware."""

    url: str
    model: str
    model_digest: str
    pods: int
    config: dict[str, str]
    hardware: Hardware

    @property
    def config_digest(self) -> str:
        """The digest of the configuration."""
        return digest_of(self.config)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A search: its subject, its rules, what was learnt first, and every trial in order."""

    version: int = VERSION
    subject: Subject
    rules: Rules
    timing: Timing
    scope: Scope
    scouted: Scouted
    seed: int
    trials: tuple[Trial, ...] = ()

    def added(self, trial: Trial) -> Record:
        """Return the record with one more trial."""
        return msgspec.structs.replace(self, trials=(*self.trials, trial))

    def require(self, path: str, subject: Subject, rules: Rules) -> None:
        """Make sure that going on with `subject` and `rules` goes on with the same search.

        Raises:
            RecordError: It is of another server, model, configuration or hardware, or has another objective.
        """
        for what, found, wanted in (
            ("url", self.subject.url, subject.url),
            ("model", self.subject.model, subject.model),
            ("model digest", self.subject.model_digest, subject.model_digest),
            ("number of pods", self.subject.pods, subject.pods),
            ("configuration", self.subject.config, subject.config),
            ("hardware", self.subject.hardware.name, subject.hardware.name),
            ("objective", f"{self.rules.slo_ms:g} ms", f"{rules.slo_ms:g} ms"),
            ("share that may miss it", self.rules.slow_share, rules.slow_share),
        ):
            if found != wanted:
                raise RecordError(path, f"is of another {what}: {found}, and this is {wanted}")


def write_record(record: Record, path: Path) -> None:
    """Write a record in one step; raises `RecordError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    except OSError as error:
        raise RecordError(str(path), error.strerror or str(error)) from error


def read_record(path: Path) -> Record:
    """Read a record.

    Raises:
        RecordError: There is none, or it is of another version.
    """
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
    except OSError as error:
        raise RecordError(str(path), error.strerror or str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RecordError(str(path), f"no record of a capacity search: {error}") from error
    if record.version != VERSION:
        raise RecordError(str(path), f"a record of version {record.version}, expected {VERSION}")
    return record
