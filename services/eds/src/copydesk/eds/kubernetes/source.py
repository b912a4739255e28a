"""The Kubernetes source: Services by a label selector, and the EndpointSlices that Kubernetes keeps for them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from copydesk.common.telemetry import get_logger
from copydesk.eds.kubernetes.cluster import Cluster, OfServices, OfSlices, reduce
from copydesk.eds.kubernetes.declaration import Problem
from copydesk.eds.kubernetes.follower import Follower, Pace, Page, Resource, Word
from copydesk.eds.kubernetes.objects import EndpointSlice, Service
from copydesk.eds.kubernetes.projection import Projector
from copydesk.eds.kubernetes.reason import Reason
from copydesk.eds.roster import Listed
from copydesk.eds.source import Emit
from copydesk.kube.api import Api
from copydesk.kube.objects import SERVICE_NAME

ALL_NAMESPACES = "*"

T = TypeVar("T", Service, EndpointSlice)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which Services count: those in `namespace` (`*`: in all) that match the label selector `selector`.

    `port` is the name of the port that gateways talk to, where a Service declares none.
    """

    namespace: str
    selector: str
    port: str


@dataclass(frozen=True, slots=True)
class Observer:
    """What is called, with the resource and the reason, when all is listed again and when that is impossible."""

    relisted: Callable[[str, str], None]
    failed: Callable[[str, str], None]


class KubernetesSource:
    """Follows the cluster, and states all endpoints whenever one of them, or whether it can be heard, changes.

    Nothing is stated before both resources have been listed: an endpoint that does not show yet may be there.
    """

    def __init__(self, api: Api, selection: Selection, pace: Pace, observer: Observer) -> None:
        self._api = api
        self._observer = observer
        self._cluster = Cluster()
        self._project = Projector(selection.port)
        self._failing: dict[str, Reason] = {}
        self._problems: frozenset[Problem] = frozenset()
        self._stated: Listed | None = None
        self._emit: Emit | None = None
        self._tasks: list[asyncio.Task[None]] = []
        services = Follower(
            api,
            Resource(
                "services", _path("api/v1", selection, "services"), selection.selector, Service, Page[Service]
            ),
            pace,
            _Ear(self, OfServices),
            random=random.random,
        )
        slices = Follower(
            api,
            Resource(
                "endpointslices",
                _path("apis/discovery.k8s.io/v1", selection, "endpointslices"),
                SERVICE_NAME,
                EndpointSlice,
                Page[EndpointSlice],
            ),
            pace,
            _Ear(self, OfSlices),
            random=random.random,
        )
        self._runs = (services.run, slices.run)

    async def start(self, emit: Emit) -> None:
        """Begin to follow; a server that is not there is waited for."""
        self._emit = emit
        self._tasks = [asyncio.create_task(run(), name="kubernetes-source") for run in self._runs]

    async def close(self) -> None:
        """Stop following, and close the connections."""
        self._emit = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._api.close()

    def learn(self, events: Sequence[OfServices | OfSlices]) -> None:
        """Take in what one of the resources' followers was told at once."""
        before = self._cluster
        for event in events:
            self._cluster = reduce(self._cluster, event)
        if self._cluster is not before:
            self._state()

    def relisted(self, resource: str, reason: Reason) -> None:
        """Count a list."""
        self._observer.relisted(resource, reason.value)

    def failing(self, resource: str, reason: Reason | None) -> None:
        """Note whether a resource can be heard, and state what is known as stale while one cannot."""
        was_stale = bool(self._failing)
        if reason is None:
            self._failing.pop(resource, None)
        else:
            self._failing[resource] = reason
            self._observer.failed(resource, reason.value)
        if bool(self._failing) is not was_stale:
            self._state()

    def _state(self) -> None:
        if not self._cluster.is_known or self._emit is None:
            return
        projection = self._project(self._cluster)
        self._tell_problems(projection.problems)
        listed = Listed(projection.models, stale=bool(self._failing))
        if listed != self._stated:
            self._stated = listed
            self._emit(listed)

    def _tell_problems(self, problems: frozenset[Problem]) -> None:
        for problem in sorted(problems - self._problems, key=lambda each: (each.resource, each.name, each.text)):
            _log.warning(
                "kubernetes_object_unusable", resource=problem.resource, name=problem.name, problem=problem.text
            )
        self._problems = problems


class _Ear(Generic[T]):
    """Hears what one follower says, and tells the source which resource it is about."""

    def __init__(self, source: KubernetesSource, event: Callable[[Word[T]], OfServices | OfSlices]) -> None:
        self._source = source
        self._event: Callable[[Word[T]], OfServices | OfSlices] = event

    def learn(self, words: list[Word[T]]) -> None:
        self._source.learn([self._event(word) for word in words])

    def relisted(self, resource: str, reason: Reason) -> None:
        self._source.relisted(resource, reason)

    def failing(self, resource: str, reason: Reason | None) -> None:
        self._source.failing(resource, reason)


def _path(group: str, selection: Selection, plural: str) -> str:
    if selection.namespace == ALL_NAMESPACES:
        return f"{group}/{plural}"
    return f"{group}/namespaces/{selection.namespace}/{plural}"
