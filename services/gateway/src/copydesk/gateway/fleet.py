"""The pods that discovery names, and the choice among them.

Membership comes from discovery's snapshots alone. When none come, because NATS or discovery is gone, the last one
stays in force for as long as it takes: running gateways keep serving with running pods.

Choosing happens for each request, everything else ten times a second or when something changes: who is in the
aperture, who is ejected, who is near. So a choice looks at two pods and at nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from math import inf

from copydesk.common.messages import Endpoint, EndpointsSnapshot, LoadReport
from copydesk.common.telemetry import get_logger
from copydesk.gateway.balancing import Balancing
from copydesk.gateway.health import Health
from copydesk.gateway.lane.seams import Port
from copydesk.gateway.link import Link
from copydesk.gateway.pod import Dialling, Pod
from copydesk.routing import (
    Held,
    Ledger,
    LedgerRules,
    Member,
    Reason,
    Verdict,
    allowance,
    aperture,
    choose,
    choose_near,
    hear,
    judge,
    resize,
    usable,
)

RETIRE_SECONDS = 60.0
"""How long a pod that left the membership may still answer what it has: the default deadline."""

REVIEW_SECONDS = 0.1
"""How often the fleet is reviewed: a twentieth of the time within which a pod that hangs is to be found out."""

STALLED_REVIEWS = 3.0
"""A review that comes so many times too late says that this process stood still, and its evidence nothing."""

RESIZE_SECONDS = 2.0
"""How long the pods of a new aperture have to connect before it is looked at again: a connection's timeout."""

_log = get_logger(__name__)


class Fleet:
    """Every pod of one model, those of them that this gateway uses, and those who wait for one.

    `eligible` are the pods of the aperture that can take work; of these `near` and `far` are those that are chosen
    from: not ejected, unless that is `panic`, in this gateway's zone and not. `allowance` is how many requests
    this gateway may have at pods. `on_refresh` is called whenever any of this may have changed. `new_ledger` makes
    the account of a new pod; `open_port`, set before there are pods, shares connections with an express lane.

    Pods of the weights that are `withheld` are `spare`: none of those to choose from, while there are others.
    """

    def __init__(
        self,
        dialling: Dialling,
        balancing: Balancing | None = None,
        *,
        new_ledger: Callable[[], LedgerRules] = Ledger,
    ) -> None:
        self.balancing = balancing or Balancing()
        self.health = Health(self.balancing.outliers)
        self.pods: dict[str, Pod] = {}
        self.eligible: list[Pod] = []
        self.near: list[Pod] = []
        self.far: list[Pod] = []
        self.panic = False
        self.allowance = 0
        self.aperture_size = self.balancing.aperture
        self.digest = ""
        self.withheld = ""
        self.spare: list[Pod] = []
        self.on_refresh: Callable[[], None] | None = None
        self.open_port: Callable[[Pod, Link], Port | None] | None = None
        self._dialling = dialling
        self._new_ledger = new_ledger
        self._random = dialling.random
        self._loop = asyncio.get_running_loop()
        self._held: Held | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._waiters: dict[object, Callable[[], None]] = {}
        self._reports: dict[str, tuple[float, int]] = {}
        self._ordinary: list[Pod] = []
        self._weights: dict[str, str] = {}
        self._made_at = self._reviewed_at = self._resized_at = self._loop.time()
        self._reviewer = self._loop.call_later(REVIEW_SECONDS, self._on_tick)

    @property
    def model(self) -> str:
        """The name of the model that these pods serve."""
        return self._dialling.model

    @property
    def capacity(self) -> int:
        """How many requests the pods that are chosen from run at once, as far as they have told."""
        return sum(pod.ledger.capacity for pod in (*self.near, *self.far))

    def membership_age(self, now: float) -> float:
        """For how many seconds discovery has not said who is there; before its first word, since the beginning."""
        return now - (self._made_at if self._held is None else self._held.heard_at)

    def withhold(self, digest: str) -> None:
        """Give pods of these weights no work while others can take it; of "" none are withheld.

        As many of them as the aperture has are connected to, beside those in it: of few among many it may have
        none.
        """
        if digest != self.withheld:
            self.withheld = digest
            self._engage()
            self._refresh()

    def apply(self, snapshot: EndpointsSnapshot) -> None:
        """Take over a snapshot, unless a newer one is in force or it is for another model.

        An empty one is not taken over: pods that are truly gone have lost their connections, and if they have not,
        then discovery is mistaken (envoyproxy/envoy#13072).
        """
        if snapshot.model != self.model:
            return
        now = self._loop.time()
        first = self._held is None
        verdict = judge(self._held, snapshot.epoch, snapshot.generation, now)
        self._held = hear(self._held, snapshot.epoch, snapshot.generation, now)
        if verdict is not Verdict.APPLY:
            return
        if not snapshot.endpoints and self.pods:
            _log.warning("empty_snapshot_ignored", epoch=snapshot.epoch, generation=snapshot.generation)
            return
        # What was there before this gateway has been warmed up by others.
        self._replace({endpoint.id: endpoint for endpoint in snapshot.endpoints}, born_at=-inf if first else None)

    def hear_report(self, report: LoadReport) -> None:
        """Take in what a pod tells all gateways of its load, if no answer to this one has told it lately.

        Clocks are not compared: NATS holds nothing back that was sent before it was connected, and a late or
        repeated report has a sequence that is not new.
        """
        pod = self.pods.get(report.pod)
        if pod is None or report.model != self.model:
            return
        if self._weights.get(report.pod) != report.digest:
            self._weights[report.pod] = report.digest
            if report.digest and report.digest == self.withheld:
                self._engage()
        if not pod.connected:
            return
        started_at, sequence = self._reports.get(report.pod, (0.0, 0))
        if report.started_at == started_at and report.sequence <= sequence:
            return
        self._reports[report.pod] = (report.started_at, report.sequence)
        now = self._loop.time()
        if pod.ledger.expects_news(now):
            pod.ledger.hear(report.running, report.queued, report.capacity, now)

    def pick(self, excluded: Collection[str] = ()) -> Pod | None:
        """Choose an eligible pod whose id is not excluded; None if there is none."""
        now = self._loop.time()
        if excluded:
            return self._pick_another(excluded, now)
        if not self.far:
            return choose(self.near, now=now, random=self._random)
        return choose_near(self.near, self.far, spillover=self.balancing.spillover, now=now, random=self._random)

    def _pick_another(self, excluded: Collection[str], now: float) -> Pod | None:
        """Choose for a second try: in another zone, as whole zones fail; an ejected one if there is no other."""
        for pods in (self.far, self.near, self._ordinary):
            chosen = choose(pods, now=now, random=self._random, excluded=excluded)
            if chosen is not None:
                return chosen
        return None

    def wait(self, callback: Callable[[], None]) -> object:
        """Have `callback` called once when the set of eligible pods has grown; returns a key for `forget`."""
        key = object()
        self._waiters[key] = callback
        return key

    def forget(self, key: object) -> None:
        """Withdraw a `wait`."""
        self._waiters.pop(key, None)

    def on_failure(self, pod: Pod) -> None:
        """A pod has failed a request; if it is one too many, it is ejected now rather than at the next review."""
        if pod.ledger.failures >= self.balancing.outliers.failures and not self.health.ejected(pod.id):
            self._review(self._loop.time())

    async def close(self) -> None:
        """Disconnect from every pod at once."""
        self._reviewer.cancel()
        for pod in tuple(self.pods.values()):
            self._retire(pod, 0.0)
        self._refresh()
        if self._retiring:
            await asyncio.wait(self._retiring)

    def _replace(self, wanted: dict[str, Endpoint], *, born_at: float | None) -> None:
        for pod in tuple(self.pods.values()):
            endpoint = wanted.get(pod.id)
            if endpoint is None or _address(endpoint) != _address(pod.endpoint):
                self._retire(pod, RETIRE_SECONDS)
                self._reports.pop(pod.id, None)
                self._weights.pop(pod.id, None)
        for endpoint in wanted.values():
            known = self.pods.get(endpoint.id)
            if known is not None:
                known.update(endpoint)
            else:
                self._add(endpoint, self._new_ledger(), born_at)
        self._engage()
        self._refresh()
        self._log_membership()

    def _engage(self) -> None:
        """Connect to the pods of the aperture, and disconnect from others when they have answered."""
        wanted = {*self._aperture(self.aperture_size), *self._spare_aperture()}
        for pod in tuple(self.pods.values()):
            if pod.id in wanted:
                pod.engage()
            elif pod.engaged:
                self._retire(pod, RETIRE_SECONDS)
                self._add(pod.endpoint, pod.ledger, pod.born_at)

    def _add(self, endpoint: Endpoint, ledger: LedgerRules, born_at: float | None) -> None:
        self.pods[endpoint.id] = Pod(
            endpoint,
            self._dialling,
            self._on_change,
            ledger=ledger,
            born_at=born_at,
            open_port=self.open_port,
        )

    def _aperture(self, size: int) -> tuple[str, ...]:
        members = [Member(pod.id, pod.endpoint.zone) for pod in self.pods.values()]
        return aperture(self.balancing.identity, self.balancing.zone, members, size)

    def _spare_aperture(self) -> tuple[str, ...]:
        """Choose among the pods that are withheld, by what they have told everybody."""
        if not self.withheld:
            return ()
        members = [
            Member(pod.id, pod.endpoint.zone)
            for pod in self.pods.values()
            if self._weights.get(pod.id) == self.withheld
        ]
        return aperture(self.balancing.identity, self.balancing.zone, members, self.aperture_size)

    def _retire(self, pod: Pod, timeout: float) -> None:
        del self.pods[pod.id]
        pod.retired = True
        task = self._loop.create_task(pod.retire(timeout))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _on_change(self, _pod: Pod) -> None:
        before = len(self.eligible)
        self._refresh()
        if len(self.eligible) != before:
            self._log_membership()

    def _log_membership(self) -> None:
        _log.info("membership", pods=len(self.pods), aperture=self.aperture_size, eligible=len(self.eligible))

    def _on_tick(self) -> None:
        now = self._loop.time()
        stalled = now - self._reviewed_at > STALLED_REVIEWS * REVIEW_SECONDS
        self._reviewed_at = now
        self._reviewer = self._loop.call_later(REVIEW_SECONDS, self._on_tick)
        if self.pods and not stalled:
            self._review(now)
            self._resize(now)

    def _review(self, now: float) -> None:
        engaged = [pod for pod in self.pods.values() if pod.engaged]
        for pod in engaged:
            pod.ledger.count_silence(now)
        verdicts = self.health.review(engaged, now, self.withheld)
        self._refresh()
        for name, reason in verdicts.ejected:
            if reason is Reason.SILENCE:
                self.pods[name].recall()
                for request in tuple(self.pods[name].underway):
                    request.on_silence()

    def _resize(self, now: float) -> None:
        base = self.balancing.aperture
        if now - self._resized_at < RESIZE_SECONDS or (len(self.pods) <= base and self.aperture_size == base):
            return
        well = {pod.id for pod in self.eligible if not self.health.ejected(pod.id)}
        in_base = well.intersection(self._aperture(base))
        size = resize(
            self.aperture_size, base, usable=len(well), usable_in_base=len(in_base), total=len(self.pods)
        )
        self._resized_at = now
        if size != self.aperture_size:
            _log.warning("aperture_resized", before=self.aperture_size, size=size, usable=len(well))
            self.aperture_size = size
            self._engage()
            self._refresh()

    def _refresh(self) -> None:
        before = len(self.eligible)
        self.eligible = [pod for pod in self.pods.values() if pod.eligible]
        self._ordinary, self.spare = self._divided()
        now = self._loop.time()
        for pod in self.eligible:
            pod.warm_up(now, self.balancing.slow_start)
        self._choose_from(now)
        for pod in self._ordinary:
            if pod.digest:
                self.digest = pod.digest
        if len(self.eligible) > before:
            waiters, self._waiters = self._waiters, {}
            for callback in waiters.values():
                callback()
        if self.on_refresh is not None:
            self.on_refresh()

    def _divided(self) -> tuple[list[Pod], list[Pod]]:
        """Return the pods for everybody, and those that are withheld; the latter too are for all if alone."""
        if not self.withheld:
            return self.eligible, []
        spare = [pod for pod in self.eligible if pod.digest == self.withheld]
        others = [pod for pod in self.eligible if pod.digest != self.withheld]
        return (others or spare), spare

    def _choose_from(self, now: float) -> None:
        ids, panic = usable([pod.id for pod in self._ordinary], self.health.outliers.ejected)
        if panic is not self.panic:
            self.panic = panic
            _log.warning("panic" if panic else "panic_over", eligible=len(ids))
        used = [self.pods[id_] for id_ in ids]
        zone = self.balancing.zone
        near = [pod for pod in used if not zone or pod.endpoint.zone == zone]
        far = [pod for pod in used if zone and pod.endpoint.zone != zone]
        self.near, self.far = (near, far) if near else (far, near)
        others = sum(pod.ledger.outstanding(now) - pod.ledger.in_flight for pod in used)
        self.allowance = allowance(self.capacity, len(used), others, overcommit=self.balancing.overcommit)


def _address(endpoint: Endpoint) -> tuple[str, int, str]:
    return endpoint.host, endpoint.port, endpoint.protocol
