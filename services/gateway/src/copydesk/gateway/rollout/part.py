"""A gateway's part in a rollout: follow the plan, divide requests by it, tell what comes of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from typing import Protocol

from copydesk.common.messages import RolloutPlan, RolloutReport
from copydesk.common.telemetry import get_logger
from copydesk.gateway.cache import SharedSentences
from copydesk.gateway.correction import Corrector
from copydesk.gateway.dispatch import Dispatcher
from copydesk.gateway.metrics import Family
from copydesk.gateway.rollout.candidate import CandidateDispatcher, CandidatePods
from copydesk.gateway.rollout.copies import Copies, CopyingCorrector, CopyingDispatcher
from copydesk.gateway.rollout.examples import Examples
from copydesk.gateway.rollout.following import Course, Following
from copydesk.gateway.rollout.versions import CandidateCount, rest_of
from copydesk.gateway.submits import Submits
from copydesk.gateway.validation import SESSION_HEADER
from copydesk.routing import Draw, Split

_SESSION = SESSION_HEADER.lower().encode()
_REQUEST_ID = b"x-request-id"
_log = get_logger(__name__)


class DrawingLane(Protocol):
    """An express lane, which leaves to Python whatever is not drawn for the baseline alone."""

    def divide(self, split: Split | None) -> None:
        """Draw by this from now on."""

    def take_draw(self) -> Draw | None:
        """Return, once, what it has drawn for the request that it has just left, if it did."""


class Rollout:
    """Divides the requests of one gateway between two versions of its model.

    `split` is None while there is nothing to divide; then nobody needs to ask here. Without a plan this is idle.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        corrector: Corrector,
        sentences: SharedSentences,
        *,
        lane: DrawingLane | None,
        gateway: str,
        started_at: float,
        examples: Examples,
    ) -> None:
        self.split: Split | None = None
        self.course: Course | None = None
        self.count = CandidateCount()
        self._baseline = dispatcher
        self._corrector = corrector
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._following = Following(dispatcher.fleet.model)
        self._pods = CandidatePods(dispatcher.fleet, random.random)
        self.candidate = CandidateDispatcher(dispatcher, self._pods, self.count)
        self.copies = Copies(dispatcher.fleet, self._pods, self._loop, examples)
        self._candidate_corrector = Corrector(
            sentences.beside(self.candidate),
            concurrency=corrector.concurrency,
            max_characters=corrector.max_characters,
        )
        self._gateway = gateway
        self._started_at = started_at
        self._sequence = 0
        self._unattended = 0
        dispatcher.metrics.include(self.families)

    def hear(self, plan: RolloutPlan) -> None:
        """Take in what the controller says."""
        before = self._following.plan
        if not self._following.hear(plan, self._loop.time()):
            return
        if before is None or before.rollout != plan.rollout:
            self.copies.begin(plan.rollout)
        self.look()

    def look(self) -> None:
        """Have the plan hold as far as it does at this time."""
        course = self._following.course(self._loop.time())
        if course is None:
            return
        before, self.course = self.course, course
        if course.split != self.split:
            self.split = course.split
            if self._lane is not None:
                self._lane.divide(course.split)
        self._baseline.fleet.withhold(course.withheld)
        self._tell(before, course)

    def corrector(self, headers: Mapping[bytes, bytes], request_id: str) -> Corrector:
        """Return who corrects this request."""
        match self._draw(headers, request_id):
            case Draw.CANDIDATE:
                return self._candidate_corrector
            case Draw.COPIED:
                return CopyingCorrector(self._corrector, self.copies)
        return self._corrector

    def dispatcher(self, headers: Mapping[bytes, bytes], request_id: str) -> Submits:
        """Return who has the texts of this request written; it must not be streamed."""
        match self._draw(headers, request_id):
            case Draw.CANDIDATE:
                return self.candidate
            case Draw.COPIED:
                return CopyingDispatcher(self._baseline, self.copies, held=False)
        return self._baseline

    def report(self, sent_at: float) -> RolloutReport | None:
        """Return the next report; None while there is no plan."""
        course = self.course
        if course is None:
            return None
        plan = course.plan
        self._sequence += 1
        return RolloutReport(
            model=plan.model,
            gateway=self._gateway,
            sequence=self._sequence,
            sent_at=sent_at,
            started_at=self._started_at,
            rollout=plan.rollout,
            epoch=plan.epoch,
            stage=plan.stage,
            share=plan.share,
            in_force=course.in_force,
            baseline=rest_of(self._baseline.demand, self.count, plan.baseline, self._pods_of(plan.baseline)),
            candidate=self.count.totals(plan.candidate, self._pods_of(plan.candidate)),
            compared=self.copies.comparison.totals(),
        )

    def families(self) -> Iterator[Family]:
        """What Prometheus reads; nothing before there ever was a plan."""
        course = self.course
        if course is None:
            return
        plan, split = course.plan, course.split
        stage = (("stage", plan.stage.value), ("in_force", str(course.in_force).lower()))
        yield "rollout_stage", "gauge", "The stage of the rollout; always 1.", [(stage, 1.0)]
        share = 0.0 if split is None else split.share
        yield "rollout_share", "gauge", "Share of requests that the candidate answers here.", [((), share)]
        outcomes = [((("outcome", name),), n) for name, n in self.copies.comparison.outcomes().items()]
        yield "rollout_copies_total", "counter", "Copies to the candidate by what came of them.", outcomes
        fallbacks = [((("reason", name),), n) for name, n in self.candidate.fallbacks.items()]
        yield "rollout_fallbacks_total", "counter", "Requests that the candidate left to others.", fallbacks
        yield "rollout_unattended_total", "counter", "Plans that expired here.", [((), self._unattended)]
        demand, count = self._baseline.demand, self.count
        answered = [
            ((("version", "baseline"),), demand.completed - count.requests),
            ((("version", "candidate"),), count.requests),
        ]
        yield "rollout_answered_total", "counter", "Requests to pods that a version answered.", answered
        failed = [((("version", "baseline"),), demand.failed), ((("version", "candidate"),), count.failures)]
        yield "rollout_failed_total", "counter", "Requests to pods that a version failed.", failed

    def _draw(self, headers: Mapping[bytes, bytes], request_id: str) -> Draw:
        split = self.split
        if split is None or self._baseline.resuming.now is not None:
            return Draw.BASELINE
        drawn = None if self._lane is None else self._lane.take_draw()
        key = headers.get(_SESSION) or headers.get(_REQUEST_ID)
        if key is None and drawn is not None:
            return drawn
        return split.draw(key or request_id.encode())

    def _pods_of(self, digest: str) -> int:
        return sum(pod.digest == digest for pod in self._baseline.fleet.eligible)

    def _tell(self, before: Course | None, course: Course) -> None:
        plan = course.plan
        if before is not None and before.in_force and not course.in_force:
            self._unattended += 1
            _log.warning(
                "rollout_unattended",
                rollout=plan.rollout,
                stage=plan.stage.value,
                share=plan.share,
                silent_s=plan.expires_after_s,
            )
            return
        seen = None if before is None else (before.plan.rollout, before.plan.stage, before.split, before.in_force)
        if seen != (plan.rollout, plan.stage, course.split, course.in_force):
            _log.info(
                "rollout_stage",
                rollout=plan.rollout,
                stage=plan.stage.value,
                share=0.0 if course.split is None else course.split.share,
                baseline=plan.baseline,
                candidate=plan.candidate,
            )
