"""The local end of the autoscaler: hears over NATS how many pods there shall be, sees to it, says who is there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from copydesk.cli.fleet import events
from copydesk.cli.fleet.orders import Orders, Refusal
from copydesk.cli.fleet.plan import ChildSpec, Role
from copydesk.cli.fleet.report import Report
from copydesk.cli.fleet.scaling import PodView, plan_moves
from copydesk.cli.fleet.supervisor import Member, Supervisor
from copydesk.common.bus import Bus
from copydesk.common.messages import (
    EndpointsSnapshot,
    EndpointState,
    ReplicaStatus,
    ScaleDecision,
    endpoints_subject,
    replicas_subject,
    scale_subject,
)

STEP_S = 1.0
"""How often the pods are told, and how long after one began to drain the next one may."""
SNAPSHOT_AGE_S = 6.0
"""Discovery speaks every two seconds. Nobody is known to be ready by a list older than three of its turns."""
COMPLAINT_S = 60.0


class Scaler:
    """Makes the pods of `supervisor` as many as `orders` say; `plan_pod` plans one of a name."""

    def __init__(
        self,
        supervisor: Supervisor,
        orders: Orders,
        plan_pod: Callable[[str], ChildSpec],
        report: Report,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._supervisor = supervisor
        self._orders = orders
        self._plan_pod = plan_pod
        self._report = report
        self._on_change = on_change
        self._clock = clock
        self._wake = asyncio.Event()
        self._snapshot: EndpointsSnapshot | None = None
        self._drained_at = 0.0
        self._complained: dict[Refusal, float] = {}

    def wake(self) -> None:
        """Look at the pods at once: one of them came up, or ended."""
        self._wake.set()

    async def run(self, bus: Bus) -> None:
        """Hear, act and tell, until cancelled."""
        model = self._orders.model
        await bus.subscribe(scale_subject(model), ScaleDecision, self.on_decision)
        await bus.subscribe(endpoints_subject(model), EndpointsSnapshot, self.on_snapshot)
        while True:
            self._wake.clear()
            self.step()
            bus.publish(replicas_subject(model), self.status())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STEP_S):
                    await self._wake.wait()

    def on_decision(self, decision: ScaleDecision) -> None:
        """Take a decision that was heard, or say why not."""
        now = self._clock()
        outcome = self._orders.hear(decision, now)
        if isinstance(outcome, Refusal):
            self._complain(decision, outcome, now)
            return
        target = outcome.target
        if target.replicas != outcome.before:
            self._report(
                events.Scaled(
                    time=now,
                    before=outcome.before,
                    pods=target.replicas,
                    reason=target.reason,
                    rule=target.rule,
                    epoch=target.epoch,
                    sequence=target.sequence,
                )
            )
            self._on_change()
            self.wake()

    def on_snapshot(self, snapshot: EndpointsSnapshot) -> None:
        """Keep what discovery said last; one of an older publisher only once the newer one has been silent."""
        before = self._snapshot
        if before is None or not self._is_fresh(before) or _turn(snapshot) >= _turn(before):
            self._snapshot = snapshot

    def step(self) -> None:
        """Start and drain what the present size asks for."""
        moves = plan_moves(self._pods(), self._orders.target.replicas, self._orders.limits)
        for name in moves.start:
            self._supervisor.add(self._plan_pod(name))
        now = self._clock()
        if moves.drain is not None and not 0 <= now - self._drained_at < STEP_S:
            self._drained_at = now
            self._supervisor.drain(moves.drain)

    def status(self) -> ReplicaStatus:
        """Say which pods there are."""
        members = self._members()
        target = self._orders.target
        staying = [member for member in members if not member.draining]
        return ReplicaStatus(
            model=self._orders.model,
            sent_at=self._clock(),
            replicas=target.replicas,
            starting=tuple(member.spec.name for member in staying if not member.ever_up),
            running=tuple(member.spec.name for member in staying if member.ever_up),
            draining=tuple(member.spec.name for member in members if member.draining),
            epoch=target.epoch,
            sequence=target.sequence,
        )

    def _complain(self, decision: ScaleDecision, refusal: Refusal, now: float) -> None:
        if now - self._complained.get(refusal, 0.0) < COMPLAINT_S:
            return
        self._complained[refusal] = now
        self._report(
            events.Refused(
                time=now,
                pods=decision.replicas,
                reason=refusal.value,
                epoch=decision.epoch,
                sequence=decision.sequence,
            )
        )

    def _members(self) -> list[Member]:
        return [member for member in self._supervisor.members.values() if member.spec.role is Role.POD]

    def _pods(self) -> list[PodView]:
        ready = self._ready()
        return [
            PodView(
                name=member.spec.name,
                started=member.child.started_at if member.child else 0.0,
                running=member.child is not None,
                ready=member.up_since is not None and member.spec.name in ready,
                draining=member.draining,
            )
            for member in self._members()
        ]

    def _ready(self) -> frozenset[str]:
        snapshot = self._snapshot
        if snapshot is None or snapshot.stale or not self._is_fresh(snapshot):
            return frozenset()
        return frozenset(pod.id for pod in snapshot.endpoints if pod.state is EndpointState.READY)

    def _is_fresh(self, snapshot: EndpointsSnapshot) -> bool:
        return abs(self._clock() - snapshot.sent_at) <= SNAPSHOT_AGE_S


def _turn(snapshot: EndpointsSnapshot) -> tuple[int, int]:
    return snapshot.epoch, snapshot.generation
