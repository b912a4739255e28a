"""Makes, asks and times models for a search: the quantiser, the engine of a pod, the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import psutil

from copydesk.cli.commands.model_evaluate import Teller
from copydesk.cli.evaluation.subjects import LocalModel, ModelLoadError
from copydesk.cli.onboarding.answers import RememberingSubject, answers_path
from copydesk.cli.onboarding.ledger import LedgerError
from copydesk.cli.onboarding.precision import Plan
from copydesk.cli.onboarding.search import Made, PlanFailedError, Tell
from copydesk.common.cache_folder import cache_folder
from copydesk.evaluation import Corpus, EvaluationResult, Options, evaluate

_BYTES_LOADED = 5
"""Bytes of memory for each byte of weights on the disk, at the worst: bfloat16 held in float32, and its cache."""
_SHOWN = 12


class RealWorkshop:
    """The model of `source`, whose digest is `digest`; `exact` is the arithmetic of the original.

    `circumstances` are what answers depend on besides weights and arithmetic: processor, version of the engine.
    Answers and quantised models are kept in the user's cache, by the digests of what they were made of.
    """

    def __init__(
        self,
        source: Path,
        digest: str,
        corpus: Corpus,
        options: Options,
        *,
        exact: str,
        circumstances: str,
        sentences: int,
    ) -> None:
        self._source = source
        self._digest = digest
        self._corpus = corpus
        self._options = options
        self._exact = exact
        self._circumstances = circumstances
        self._texts = spread_texts(corpus, sentences)
        self._reference: RememberingSubject | None = None

    def make(self, plan: Plan, tell: Tell) -> Made:
        """Return the model as the plan has it; quantised ones are made once and kept in the cache."""
        if not plan.quantised:
            return Made(directory=str(self._source), digest=self._digest, bytes=weight_bytes(self._source))
        out = quantised_path(self._digest, plan)
        if not out.exists():
            with _alone(out, lambda: tell(f"{plan.name}: another run makes it; waiting")):
                if not out.exists():
                    self._quantise(plan, out, tell)
        return Made(directory=str(out), digest=_digest_of(out), bytes=weight_bytes(out))

    def evaluate(self, plan: Plan, made: Made, tell: Tell) -> EvaluationResult:
        """Hold a plan against the original; the original itself is evaluated alone.

        The answers are remembered, so that the speed is not to be had from this: there is none in the result.
        """
        original = self._original()
        candidate = original
        if (made.digest, plan.dtype) != (self._digest, self._exact):
            candidate = self._remembering(plan.name, Path(made.directory), made.digest, plan.dtype)
        reference = None if candidate is original else original
        try:
            result = evaluate(candidate, reference, self._corpus, self._options, Teller(tell, time.monotonic))
        except ModelLoadError as error:
            raise PlanFailedError(error.reason) from error
        finally:
            candidate.forget_model()
        return _without_speed(result)

    def race(self, entries: Sequence[tuple[Plan, Made]], rounds: int, tell: Tell) -> list[list[float]]:
        """Time them in turns; who goes first changes each round, and all go once before it counts."""
        if self._reference is not None:
            self._reference.forget_model()
        entrants = [_Entrant(plan, made, held=_fit(entries)) for plan, made in entries]
        rates: list[list[float]] = [[] for _ in entrants]
        try:
            for entrant in entrants:
                tell(f"loading {entrant.name} for the measurement of its speed")
                entrant.correct(self._texts[:8])
            for number in range(rounds):
                for place in _order(len(entrants), number):
                    rates[place].append(entrants[place].rate(self._texts, time.perf_counter))
                speeds = ", ".join(f"{e.name} {r[-1]:.1f}/s" for e, r in zip(entrants, rates, strict=True))
                tell(f"round {number + 1} of {rounds}: {speeds}")
        except ModelLoadError as error:
            raise PlanFailedError(error.reason) from error
        return rates

    def _original(self) -> RememberingSubject:
        if self._reference is None:
            self._reference = self._remembering("original", self._source, self._digest, self._exact)
        return self._reference

    def _remembering(self, name: str, directory: Path, digest: str, dtype: str) -> RememberingSubject:
        path = answers_path(cache_folder() / "answers", digest, dtype, self._circumstances)
        facts = {"digest": digest[:_SHOWN], "dtype": dtype}
        return RememberingSubject(name, facts, path, lambda: LocalModel.open(directory, name=name, dtype=dtype))

    def _quantise(self, plan: Plan, out: Path, tell: Tell) -> None:
        from copydesk.inference.quantisation.conversion import quantise_directory
        from copydesk.inference.quantisation.errors import OutputFullError, OutputUnwritableError
        from copydesk.inference.quantisation.plan import PrecisionPlan
        from copydesk.inference.quantisation.scheme import Scheme

        tell(f"{plan.name}: quantising")
        precision = PrecisionPlan(Scheme(plan.scheme), plan.per_tensor, plan.keep)
        try:
            quantise_directory(self._source, out, precision, measure=False)
        except (OutputFullError, OutputUnwritableError):  # no other plan will do better
            raise
        except _made_impossible() as error:
            raise PlanFailedError(str(error)) from error


class _Entrant:
    """A model in a race; `held` in memory from its first turn on, else loaded for each."""

    def __init__(self, plan: Plan, made: Made, *, held: bool) -> None:
        self.name = plan.name
        self._plan = plan
        self._made = made
        self._held = held
        self._model: LocalModel | None = None

    def correct(self, texts: Sequence[str]) -> None:
        model = self._model or LocalModel.open(Path(self._made.directory), name=self.name, dtype=self._plan.dtype)
        self._model = model if self._held else None
        model.correct(texts)

    def rate(self, texts: Sequence[str], clock: Callable[[], float]) -> float:
        """Return sentences a second; where the model has to be loaded, that is over before the clock runs."""
        if self._model is not None:
            return _timed(self._model, texts, clock)
        model = LocalModel.open(Path(self._made.directory), name=self.name, dtype=self._plan.dtype)
        model.correct(texts[:8])
        return _timed(model, texts, clock)


@contextlib.contextmanager
def _alone(out: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Be the only run that makes `out`; a process that was killed holds nothing. Raises `LedgerError`."""
    path = out.with_name(f".{out.name}.lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LedgerError(path, f"cannot be written: {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def quantised_path(source_digest: str, plan: Plan) -> Path:
    """Where the cache has a model as a plan quantises it."""
    return cache_folder() / "quantised" / f"{source_digest[:16]}-{plan.name}"


def spread_texts(corpus: Corpus, count: int) -> list[str]:
    """Return so many sentences of a corpus, at even distances."""
    texts = list(dict.fromkeys(example.source for example in corpus.examples))
    count = min(count, len(texts))
    return [texts[place * len(texts) // count] for place in range(count)]


def weight_bytes(directory: Path) -> int:
    """Return the bytes of the files of weights."""
    return sum(path.stat().st_size for path in directory.glob("*.safetensors"))


def _timed(model: LocalModel, texts: Sequence[str], clock: Callable[[], float]) -> float:
    began = clock()
    model.correct(texts)
    return len(texts) / max(clock() - began, 1e-9)


def _order(count: int, number: int) -> list[int]:
    """Everybody's turn in a round: the others before who was first the last time."""
    return [(place + number) % count for place in range(count)]


def _fit(entries: Sequence[tuple[Plan, Made]]) -> bool:
    """Whether all of them fit into half of the memory that is free."""
    return 2 * _BYTES_LOADED * sum(made.bytes for _, made in entries) <= psutil.virtual_memory().available


def _without_speed(result: EvaluationResult) -> EvaluationResult:
    reference = result.reference and msgspec.structs.replace(result.reference, rate=None)
    candidate = msgspec.structs.replace(result.candidate, rate=None)
    metrics = {name: metric for name, metric in result.metrics.items() if name not in ("p50_ms", "p99_ms")}
    return msgspec.structs.replace(result, candidate=candidate, reference=reference, metrics=metrics)


def _digest_of(directory: Path) -> str:
    from copydesk.inference.checkpoint import read_digest
    from copydesk.inference.checkpoint.errors import CheckpointError

    try:
        return read_digest(directory)
    except (CheckpointError, OSError) as error:
        raise PlanFailedError(f"{directory} is damaged ({error}); remove it") from error


def _made_impossible() -> tuple[type[Exception], ...]:
    """What keeps one plan, and perhaps no other, from being made."""
    from copydesk.inference.checkpoint.errors import CheckpointError
    from copydesk.inference.engine.native.errors import ModelError
    from copydesk.inference.quantisation.errors import QuantisationError

    return QuantisationError, ModelError, CheckpointError


def use_device(device: str) -> None:
    """Have this process's engines, and fleets that it starts, compute on a device; "" leaves what is set."""
    if device:
        os.environ["COPYDESK_INFERENCE_DEVICE"] = device
