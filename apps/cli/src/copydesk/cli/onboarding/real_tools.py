"""What the stages of onboarding do, for real: on this machine, with fleets of this command."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from copydesk.cli.bench.workload import read_texts
from copydesk.cli.commands.model_search import hold_search, workshop_for
from copydesk.cli.fleet.ports import free_port, is_free
from copydesk.cli.onboarding.bursts import BurstFailedError, burst_rates
from copydesk.cli.onboarding.finite import bad_tensors
from copydesk.cli.onboarding.ledger import Ledger, LedgerError, digest_of
from copydesk.cli.onboarding.making_profile import bare_profile
from copydesk.cli.onboarding.precision import Plan
from copydesk.cli.onboarding.search import Found, Made, PlanFailedError, Tell
from copydesk.cli.onboarding.stages import (
    CAPACITY,
    CHECK,
    COLD_START,
    GATE,
    QUANTISE,
    TUNE,
    Certified,
    Checked,
    ColdStart,
    Job,
    Serving,
    StageFailedError,
    certificate_path,
)
from copydesk.cli.onboarding.subject import Ground, Subject
from copydesk.cli.onboarding.trial_fleet import HOST, TrialFleetError, start_tethered, trial_fleet
from copydesk.cli.onboarding.tuning import FIRST_S, QUICK_S, Measured, Setting, Tuned, settings_to_try, tune
from copydesk.common.profile import write_profile
from copydesk.evaluation import EvaluationResult, Options
from copydesk.loadtest.certificate import read_certificate
from copydesk.loadtest.record import RecordError, read_record
from copydesk.loadtest.search import Hopeless, next_step

STARTS, QUICK_STARTS = 3, 1
QUICK_CERTIFICATE = ("--seconds", "3", "--arrivals", "299", "--precision-percent", "25", "--warm-seconds", "3")
_TEXTS = 512
"""Sentences that loads are made of, at the most."""
_FEW = 256
"""Of the data: with fewer, those that come with the command join them, since gateways answer equal ones once."""


@dataclass(frozen=True, slots=True)
class RealTools:
    """Works on `subject` on `ground`, and writes into `out`. `rounds` and `sentences` are those of the search."""

    job: Job
    subject: Subject
    ground: Ground
    options: Options
    ledger: Ledger
    out: Path
    tell: Tell
    rounds: int
    sentences: int
    tool: str
    now: Callable[[], datetime.datetime]

    def check(self) -> Checked:
        """Look at the model, and read its weights once."""
        report = self.subject.report
        if not report.usable or not self.subject.digest or report.prompt is None:
            problems = "; ".join(map(str, report.errors)) or "it does not say how it is asked"
            raise StageFailedError(CHECK, problems, "copydesk model check shows what there is")
        native = next((engine for engine in report.engines if engine.engine == "native"), None)
        if native is not None and native.supported is False:
            advice = "onboarding measures with the native engine; see copydesk model check for others"
            raise StageFailedError(CHECK, f"the native engine does not compute it: {native.reason}", advice)
        from copydesk.inference.inspection.headers import HeaderError

        try:
            bad = bad_tensors(self.subject.directory)
        except (OSError, ValueError, HeaderError) as error:
            raise StageFailedError(
                CHECK, f"its weights cannot be read: {error}", "see that nobody writes to it, and run it again"
            ) from error
        if bad:
            first = bad[0]
            more = f", and {len(bad) - 1} more tensors" if len(bad) > 1 else ""
            reason = f"{first.name} has {first.values:,} values that are infinite or no number{more}"
            raise StageFailedError(CHECK, reason, "the weights are damaged, or training diverged: get others")
        return self._looked()

    def search(self) -> Found:
        """Search, with the steps of it in the same ledger."""
        return hold_search(
            self.subject,
            self.ground,
            self.job.choice,
            self.options,
            self.ledger,
            self._detail,
            self.rounds,
            self.sentences,
        )

    def install(self, plan: Plan) -> Made:
        """Link or copy the quantised model to where the profile is; an original stays where it is."""
        workshop = workshop_for(self.subject, self.ground, self.options, self.sentences)
        try:
            made = workshop.make(plan, self._detail)
        except PlanFailedError as error:
            advice = "choose another plan (--plan), see copydesk model search"
            raise StageFailedError(QUANTISE, f"{plan.name}: {error.reason}", advice) from error
        if not plan.quantised:
            return made
        target = self.out / "model"
        try:
            replace_directory(Path(made.directory), target)
        except OSError as error:
            reason = f"{target} cannot be written: {error.strerror or error}"
            raise StageFailedError(
                QUANTISE, reason, "free some space, or give another place with --out"
            ) from error
        return msgspec.structs.replace(made, directory=str(target))

    def gate(self, plan: Plan, made: Made) -> EvaluationResult:
        """Evaluate; what a search has asked the model is remembered."""
        workshop = workshop_for(self.subject, self.ground, self.options, self.sentences)
        try:
            return workshop.evaluate(plan, made, self._detail)
        except PlanFailedError as error:
            raise StageFailedError(GATE, error.reason, "see copydesk model check") from error

    def tune(self, plan: Plan, made: Made) -> Tuned:
        """Measure settings in fleets of one pod; each measurement is kept."""
        quick = self.job.quick
        settings = settings_to_try(self.ground.machine.cores, quick=quick)
        texts = self._texts()

        def measure(setting: Setting, seconds: float, number: int) -> Measured:
            step = f"tune {setting.name} {number}"
            key = digest_of(made.digest, plan, setting, seconds, self.job.inputs.hardware, self.job.inputs.data)
            kept = self.ledger.find(step, key, Measured)
            if kept is not None:
                return kept[0]
            serving = Serving(plan=plan, made=made, setting=setting)
            measured = self._measure(serving, texts, seconds)
            if measured.rates:  # what kept it from running may be gone the next time
                self.ledger.keep(step, key, measured, seconds)
            told = measured.failure or f"{measured.mean:.1f} requests/s"
            self._detail(f"round {number}, {setting.name}: {told}")
            return measured

        tuned = tune(settings, measure, QUICK_S if quick else FIRST_S)
        if not any(measured.rates for measured in tuned.measured):
            reason = f"no fleet of it runs here: {tuned.measured[0].failure}"
            raise StageFailedError(TUNE, reason, "see copydesk model check: memory, and what else runs here")
        return tuned

    def certify(self, serving: Serving) -> Certified:
        """Have `copydesk capacity` measure a fleet of one pod; its trials are kept, too."""
        path, state = certificate_path(self.out), self.out / "capacity-trials.json"
        identity, port = self._certificate_run(serving, state)
        with self._fleet(serving, CAPACITY, port) as fleet:
            command = ["capacity", "--url", fleet.url, "--state", str(state), "--output", str(path)]
            command += ["--picture", str(self.out / "capacity.svg"), "--json", "--slo-ms", f"{self.job.slo_ms:g}"]
            command += ["--texts", str(self._texts_file()), *self._config(serving)]
            command += list(QUICK_CERTIFICATE) if self.job.quick else []
            command += ["--max-rate", f"{self.job.max_rate:g}"] if self.job.max_rate else []
            command += ["--resume"] if state.exists() else []
            self.ledger.keep("capacity run", identity, port, 0.0)
            code, last = _followed(command, self._detail)
        if code != 0:
            reason = last.removeprefix("error: ") or f"copydesk capacity ended with code {code}"
            advice = (
                "run it again when this machine has less else to do, ask for less (--slo-ms), or leave it out "
                "(--no-capacity)"
            )
            raise StageFailedError(CAPACITY, reason, advice)
        made = read_certificate(path)
        return Certified(
            file=str(path),
            digest=_sha256(path),
            rough=self.job.quick,
            rate=made.rate_per_pod,
            concurrency=made.concurrency_per_pod,
        )

    def cold_start(self, serving: Serving) -> ColdStart:
        """Start a fleet several times, and take what its pod took."""
        seconds = []
        for _ in range(QUICK_STARTS if self.job.quick else STARTS):
            with self._fleet(serving, COLD_START, None) as fleet:
                seconds.append(fleet.pod_s)
        return ColdStart(seconds=tuple(seconds))

    def intact(self, made: Made) -> bool:
        """Whether the model is where it was, with the digest that it had."""
        from copydesk.inference.checkpoint import read_digest
        from copydesk.inference.checkpoint.errors import CheckpointError

        try:
            return read_digest(Path(made.directory)) == made.digest
        except (CheckpointError, OSError):
            return False

    def intact_certificate(self, certified: Certified) -> bool:
        """Whether the certificate is the one that was written."""
        path = Path(certified.file)
        return path.is_file() and _sha256(path) == certified.digest

    def _measure(self, serving: Serving, texts: list[str], seconds: float) -> Measured:
        try:
            with trial_fleet(self._trial_profile(serving)) as fleet:
                return Measured(setting=serving.setting, rates=burst_rates(fleet.url, texts, seconds))
        except (TrialFleetError, BurstFailedError) as error:
            return Measured(setting=serving.setting, failure=error.reason)

    @contextlib.contextmanager
    def _fleet(self, serving: Serving, stage: str, port: int | None) -> Iterator[_Fleet]:
        try:
            with trial_fleet(self._trial_profile(serving), port=port) as fleet:
                yield _Fleet(fleet.url, fleet.pod_s)
        except TrialFleetError as error:
            raise StageFailedError(
                stage, str(error), "see copydesk model check: memory, what else runs"
            ) from error

    def _trial_profile(self, serving: Serving) -> Path:
        path = self.out / ".trial.yaml"
        profile = bare_profile(
            self.job.name,
            serving.plan,
            serving.made,
            serving.setting,
            self._looked(),
            path,
            self.now(),
            self.tool,
            self.ground.device,
        )
        write_profile(profile, path)
        return path

    def _looked(self) -> Checked:
        report = self.subject.report
        assert report.prompt is not None
        return Checked(
            architecture=report.architecture,
            parameters=report.sizes.parameters,
            bytes=report.sizes.bytes,
            template=report.prompt.template,
            template_digest=report.prompt.digest,
            warnings=tuple(map(str, report.problems)),
        )

    def _certificate_run(self, serving: Serving, state: Path) -> tuple[str, int]:
        """Go on with the trials of the same fleet, at the same address; else begin anew."""
        identity = digest_of(serving, self.job.slo_ms, self.job.quick, self.job.max_rate, self.job.inputs.data)
        kept = self.ledger.find("capacity run", identity, int)
        if kept is not None and is_free(HOST, kept[0]) and not in_vain(state):
            return identity, kept[0]
        state.unlink(missing_ok=True)
        return identity, free_port(HOST, random.Random())

    def _config(self, serving: Serving) -> list[str]:
        told = {"dtype": serving.plan.dtype, "plan": serving.plan.name, **serving.setting.changed}
        told.pop("slots", None)  # pods tell it themselves
        return [part for key, value in told.items() for part in ("--config", f"{key}={value}")]

    def _texts(self) -> list[str]:
        corpus = self.ground.corpus
        texts = [corpus.text(example.source) for example in corpus.examples]
        if len(texts) < _FEW:
            texts += read_texts(None, None)
        return [text for text in dict.fromkeys(texts) if text.strip()][:_TEXTS]

    def _texts_file(self) -> Path:
        path = self.out / ".texts"
        try:
            path.write_text("\n".join(" ".join(text.split()) for text in self._texts()) + "\n", encoding="utf-8")
        except OSError as error:
            raise LedgerError(path, f"cannot be written: {error.strerror or error}") from error
        return path

    def _detail(self, line: str) -> None:
        self.tell(f"      {line}")


@dataclass(frozen=True, slots=True)
class _Fleet:
    url: str
    pod_s: float


def replace_directory(source: Path, target: Path) -> None:
    """Make `target` what `source` is, in one step; files are linked where that is possible, else copied.

    Raises:
        OSError: It cannot be written; what was there stays.
    """
    beside = target.with_name(f".{target.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        shutil.copytree(source, beside, copy_function=_link_or_copy)
    except shutil.Error as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise OSError(str(error.args[0][0][2] if error.args and error.args[0] else error)) from error
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    beside.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def in_vain(state: Path) -> bool:
    """Whether a search for a capacity ended without any, so that going on from its trials ends there at once."""
    try:
        record = read_record(state)
    except RecordError:
        return state.exists()
    return isinstance(next_step(record.trials, record.rules, record.scope), Hopeless)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _followed(command: list[str], tell: Tell) -> tuple[int, str]:
    """Run the command as a child, and pass on what it says; return its exit code and its last line."""
    last = ""
    with start_tethered(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            for raw in process.stderr:
                last = raw.decode(errors="replace").strip() or last
                tell(last)
            return process.wait(), last
        finally:
            if process.poll() is None:
                process.terminate()
