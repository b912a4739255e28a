"""Controls a rollout over NATS: hears pods, gateways and other controllers, says once a second what holds.

Of two controllers of one model the one with the larger epoch goes on. The other hears of it by its plans, or by
what gateways report to follow.
"""

from __future__ import annotations

import asyncio
import enum
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from copydesk.cli.rollout.conductor import Beginning, Conductor, Terms
from copydesk.cli.rollout.roster import Roster, VersionError, Versions, find_versions, short
from copydesk.cli.rollout.status import RolloutStatus, status_of
from copydesk.common.bus import Bus
from copydesk.common.messages import (
    LoadReport,
    RolloutPlan,
    RolloutReport,
    RolloutStage,
    load_subject,
    rollout_report_subject,
    rollout_subject,
)
from copydesk.common.telemetry import get_logger
from copydesk.routing import Stage

LISTEN_SECONDS = 2.5
"""For how long to listen before anything is said: to two messages of whoever else controls, ten of each pod."""

FAREWELL_SECONDS = 8.0
"""For how long the end is told if gateways do not say that they have heard it."""

JITTER = 1000
"""By up to so much epochs are larger than they must be: two controllers that start in one moment are to differ."""

_log = get_logger(__name__)


class Ending(enum.Enum):
    """How the control of a rollout ended."""

    FINISHED = "finished"
    ROLLED_BACK = "rolled back"
    UNHEARD = "finished, but not every gateway has said that it heard so"
    TAKEN_OVER = "another controller has taken over"
    LEFT = "left as it is"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to roll out. `candidate` and `baseline` are digests or their beginnings; `model` None is the only one.

    With `resume` a rollout that is underway is taken over. With `keep` a stop leaves the plan to expire; else it
    rolls back. With `hold` it stays after the end until the baseline's pods have gone.
    """

    terms: Terms
    candidate: str
    baseline: str | None = None
    model: str | None = None
    resume: bool = False
    keep: bool = False
    hold: bool = False


OnStatus = Callable[[RolloutStatus], None]


class Controller:
    """Runs one rollout on a bus; `stop` ends it. `period` is how many seconds lie between two messages."""

    def __init__(self, bus: Bus, wanted: Wanted, show: OnStatus, *, name: str, period: float = 1.0) -> None:
        self._bus = bus
        self._wanted = wanted
        self._show = show
        self._name = name
        self._period = period
        self._roster = Roster()
        self._plans: dict[str, tuple[float, RolloutPlan]] = {}
        self._reports: dict[str, RolloutReport] = {}
        self._conductor: Conductor | None = None
        self._stopped = asyncio.Event()
        self._reason = ""
        self._taken_over = False
        self._loop = asyncio.get_running_loop()
        self._echoed_at = time.time()
        self._listens = False
        self._listens_since: float | None = None

    def stop(self, reason: str) -> None:
        """Come to an end: roll back, unless that is not wanted."""
        self._reason = reason
        self._stopped.set()

    async def run(self) -> Ending:
        """See the rollout through; raises `VersionError` if it cannot begin as it was wanted."""
        model = self._wanted.model or "*"
        await self._bus.subscribe(load_subject(model, "*"), LoadReport, self._hear_load)
        await self._bus.subscribe(rollout_subject(model), RolloutPlan, self._hear_plan)
        await self._bus.subscribe(rollout_report_subject(model, "*"), RolloutReport, self._hear_report)
        await asyncio.sleep(LISTEN_SECONDS * self._period)
        conductor = self._conductor = self._begin()
        self._say(conductor, "stage")
        ending = await self._conduct(conductor)
        if ending in (Ending.FINISHED, Ending.ROLLED_BACK):
            ending = await self._farewell(conductor, ending)
        self._show(status_of(conductor, "end", time.time()))
        return ending

    def _begin(self) -> Conductor:
        wanted, now = self._wanted, self._loop.time()
        versions = find_versions(
            self._roster, now, model=wanted.model, candidate=wanted.candidate, baseline=wanted.baseline
        )
        known = [report.epoch + 1 for report in self._reports.values() if report.model == versions.model]
        epoch = max([time.time_ns() // 1_000_000, *known]) + secrets.randbelow(JITTER)
        underway = self._underway(versions.model, now)
        if wanted.resume:
            begin = self._resumed(versions, underway, epoch)
        elif underway is not None:
            raise VersionError(
                f"the rollout {underway.rollout} of {versions.model} is underway", "take it over with --resume"
            )
        else:
            begin = Beginning(self._name, epoch)
        self._echoed_at = time.time()
        return Conductor(versions, wanted.terms, begin, now=now, wall=time.time())

    def _underway(self, model: str, now: float) -> RolloutPlan | None:
        heard_at, plan = self._plans.get(model, (0.0, None))
        watched = plan is not None and plan.stage in (RolloutStage.SHADOW, RolloutStage.SHARE)
        return plan if watched and now - heard_at <= LISTEN_SECONDS * self._period else None

    def _resumed(self, versions: Versions, underway: RolloutPlan | None, epoch: int) -> Beginning:
        """Go on from the controller that is heard, else from where gateways say that the last one was."""
        model = versions.model
        reports = [report for report in self._reports.values() if report.model == model]
        heard: RolloutPlan | RolloutReport | None = underway or max(
            reports, key=lambda report: report.epoch, default=None
        )
        if heard is None or heard.stage not in (RolloutStage.SHADOW, RolloutStage.SHARE):
            raise VersionError(f"no rollout of {model} is underway", "begin one without --resume")
        between = _between(heard)
        if between != (versions.baseline, versions.candidate):
            old, new = map(short, between)
            raise VersionError(
                f"the rollout {heard.rollout} that is underway is from {old} to {new}",
                f"--candidate {new} --baseline {old} takes it over",
            )
        return Beginning.resumed(heard, self._wanted.terms.policy.shares, epoch)

    async def _conduct(self, conductor: Conductor) -> Ending:
        while not conductor.stage.over:
            await self._pause()
            if self._taken_over:
                return Ending.TAKEN_OVER
            now = self._loop.time()
            if self._stopped.is_set():
                if self._wanted.keep:
                    return Ending.LEFT
                conductor.roll_back(self._reason, now)
                changed = True
            else:
                pods = self._roster.ready(conductor.versions.model, now)
                changed = conductor.tick(
                    baselines=pods[conductor.versions.baseline],
                    candidates=pods[conductor.versions.candidate],
                    now=now,
                )
            self._say(conductor, "stage" if changed else "tick")
        return Ending.FINISHED if conductor.stage is Stage.FINISHED else Ending.ROLLED_BACK

    async def _farewell(self, conductor: Conductor, ending: Ending) -> Ending:
        """Tell the end until every gateway has heard it; with `hold`, while there are pods of the baseline."""
        until = self._loop.time() + FAREWELL_SECONDS * self._period
        stage = conductor.stage.value
        while not conductor.gathered.follow(stage) and self._loop.time() < until:
            await asyncio.sleep(self._period / 2)
            if self._taken_over:
                return Ending.TAKEN_OVER
            self._publish(conductor)
        if conductor.stage is not Stage.FINISHED:
            return ending
        if not conductor.gathered.follow(stage):
            return Ending.UNHEARD
        await self._stay(conductor)
        return ending

    async def _stay(self, conductor: Conductor) -> None:
        if not self._wanted.hold:
            return
        versions = conductor.versions
        while self._roster.ready(versions.model, self._loop.time())[versions.baseline] and not (
            self._stopped.is_set() or self._taken_over
        ):
            await self._pause()
            self._say(conductor, "tick")

    async def _pause(self) -> None:
        if self._stopped.is_set():
            return
        try:
            async with asyncio.timeout(self._period):
                await self._stopped.wait()
        except TimeoutError:
            return

    def _say(self, conductor: Conductor, event: str) -> None:
        self._publish(conductor)
        self._show(status_of(conductor, event, time.time()))

    def _publish(self, conductor: Conductor) -> None:
        if self._may_speak(conductor.terms.expires_after_s):
            self._bus.publish(rollout_subject(conductor.versions.model), conductor.plan(time.time()))

    def _may_speak(self, expires_after_s: float) -> bool:
        """Say whether gateways can still be taken to follow this controller, or have been listened to since.

        It comes back from a silence in which plans have expired, since NATS was away or this machine asleep: then
        another controller may have begun and ended, and what this one says would undo that. So it first hears for
        a while whom gateways have followed last. (The time of the day goes on while a machine sleeps.)
        """
        now = time.time()
        if now - self._echoed_at <= expires_after_s:
            self._listens = False
            return True
        if not self._listens:
            self._listens, self._listens_since = True, None
        listened = LISTEN_SECONDS * self._period
        if self._listens_since is None or self._loop.time() - self._listens_since < listened:
            return False
        self._listens = False
        self._echoed_at = now - expires_after_s + 2 * listened  # soon enough an echo has to say that it is heard
        return True

    def _hear_load(self, report: LoadReport) -> None:
        self._roster.hear(report, self._loop.time())
        self._connection_lives()

    def _hear_report(self, report: RolloutReport) -> None:
        self._reports[report.gateway] = report
        self._connection_lives()
        conductor = self._conductor
        if conductor is None or report.model != conductor.versions.model:
            return
        if report.epoch > conductor.begin.epoch:
            self._fall_silent()
        try:
            conductor.gathered.hear(report, self._loop.time())
        except ValueError as error:
            _log.warning("rollout_report_unreadable", gateway=report.gateway, error=str(error))

    def _hear_plan(self, plan: RolloutPlan) -> None:
        conductor = self._conductor
        if conductor is None or plan.model != conductor.versions.model:
            self._plans[plan.model] = self._loop.time(), plan
            return
        mine, other = (conductor.begin.epoch, conductor.begin.rollout), (plan.epoch, plan.rollout)
        if other > mine:
            self._fall_silent()
        elif other == mine:
            self._echoed_at = time.time()

    def _fall_silent(self) -> None:
        """Another controller goes on."""
        self._taken_over = True
        self._stopped.set()

    def _connection_lives(self) -> None:
        """Something is heard, so that whatever there is to hear will be."""
        if self._listens and self._listens_since is None:
            self._listens_since = self._loop.time()


def _between(heard: RolloutPlan | RolloutReport) -> tuple[str, str]:
    if isinstance(heard, RolloutPlan):
        return heard.baseline, heard.candidate
    return heard.baseline.digest, heard.candidate.digest
