"""What has been heard of each model, and whether something new to show has come; no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from copydesk.common.messages import EndpointsSnapshot, EndpointState
from copydesk.routing import Held, Verdict, hear, judge


class HeldBack(msgspec.Struct, frozen=True, kw_only=True):
    """For how many seconds a loss has been held back, and after how many it is let go."""

    seconds: float
    limit_seconds: float


class EndpointRow(msgspec.Struct, frozen=True, kw_only=True):
    """One endpoint. `age_s` is None where its start is not known; `held` where its loss is not held back."""

    id: str
    host: str
    port: int
    state: str
    zone: str
    node: str
    protocol: str
    capacity: int
    age_s: float | None
    held: HeldBack | None


class ModelRows(msgspec.Struct, frozen=True, kw_only=True):
    """One model as of `time`, in Unix seconds.

    `epoch` is the publisher's, 0 where a source was asked; `sent_age_s` since it was last said; `stale`: the
    publisher's own source cannot be heard.
    """

    time: float
    source: str
    model: str
    epoch: int
    generation: int
    sent_age_s: float
    stale: bool
    counts: dict[str, int]
    endpoints: tuple[EndpointRow, ...]


HeldByModel = Mapping[str, Mapping[str, HeldBack]]


class Picture:
    """The snapshots in force, judged as a gateway judges them; `source` names where they come from."""

    def __init__(self, source: str, wanted: Iterable[str] = ()) -> None:
        self._source = source
        self._wanted = frozenset(wanted)
        self._snapshots: dict[str, EndpointsSnapshot] = {}
        self._versions: dict[str, Held] = {}
        self._held: HeldByModel = {}
        self._changed: set[str] = set()

    @property
    def models(self) -> list[str]:
        """Every model heard of, wanted or not."""
        return sorted(self._snapshots)

    @property
    def complete(self) -> bool:
        """Whether models were asked for by name, and all of them have been heard of."""
        return bool(self._wanted) and self._wanted <= self._snapshots.keys()

    @property
    def missing(self) -> list[str]:
        """The models that were asked for and not heard of."""
        return sorted(self._wanted - self._snapshots.keys())

    def take(self, snapshot: EndpointsSnapshot, now: float) -> None:
        """Take in a snapshot at `now`, in monotonic seconds."""
        model = snapshot.model
        held = self._versions.get(model)
        verdict = judge(held, snapshot.epoch, snapshot.generation, now)
        self._versions[model] = hear(held, snapshot.epoch, snapshot.generation, now)
        if verdict is Verdict.IGNORE:
            return
        before, self._snapshots[model] = self._snapshots.get(model), snapshot
        if before is None or _shown(before) != _shown(snapshot):
            self._changed.add(model)

    def hold(self, held: HeldByModel) -> None:
        """Take in what is held back of all models."""
        for model in self._held.keys() | held.keys():
            if self._held.get(model, {}).keys() != held.get(model, {}).keys():
                self._changed.add(model)
        self._held = held

    def changes(self) -> list[str]:
        """Return the models of which there is something new to show since the last call."""
        changed, self._changed = self._changed, set()
        return [model for model in sorted(changed) if model in self._snapshots and self._is_wanted(model)]

    def rows(self, wall: float, models: Iterable[str] | None = None) -> list[ModelRows]:
        """Return the wanted models, or of these only `models`, as of `wall` in Unix seconds."""
        chosen = self.models if models is None else sorted(models)
        return [self._rows(self._snapshots[model], wall) for model in chosen if self._is_wanted(model)]

    def _is_wanted(self, model: str) -> bool:
        return not self._wanted or model in self._wanted

    def _rows(self, snapshot: EndpointsSnapshot, wall: float) -> ModelRows:
        counts = Counter(endpoint.state for endpoint in snapshot.endpoints)
        held = self._held.get(snapshot.model, {})
        return ModelRows(
            time=wall,
            source=self._source,
            model=snapshot.model,
            epoch=snapshot.epoch,
            generation=snapshot.generation,
            sent_age_s=_age(snapshot.sent_at, wall),
            stale=snapshot.stale,
            counts={state.value: counts[state] for state in EndpointState},
            endpoints=tuple(
                EndpointRow(
                    id=endpoint.id,
                    host=endpoint.host,
                    port=endpoint.port,
                    state=endpoint.state.value,
                    zone=endpoint.zone,
                    node=endpoint.node,
                    protocol=endpoint.protocol.value,
                    capacity=endpoint.capacity,
                    age_s=_age(endpoint.started_at, wall) if endpoint.started_at else None,
                    held=held.get(endpoint.id),
                )
                for endpoint in snapshot.endpoints
            ),
        )


def _shown(snapshot: EndpointsSnapshot) -> tuple[object, ...]:
    return snapshot.epoch, snapshot.endpoints, snapshot.stale


def _age(then: float, wall: float) -> float:
    # Clocks of two machines differ a little; nothing is younger than now.
    return round(max(0.0, wall - then), 3)
