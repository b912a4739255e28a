"""What is served at present: the newest version of every resource, encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from copydesk.common.messages import Endpoint, EndpointsSnapshot
from copydesk.eds.roster import Listing
from copydesk.eds.xds.assignment import assignable, assignment
from copydesk.eds.xds.resource import Resource, make_resource
from copydesk.eds.xds.slow_start import Births, births, is_warming, weight
from copydesk.eds.xds.types import ENDPOINTS


@dataclass(frozen=True, slots=True)
class Model:
    """One model as stated last: all endpoints, which of them can and cannot be assigned, and their births."""

    endpoints: Listing
    kept: Listing
    left_out: Listing
    births: Births


@dataclass(frozen=True, slots=True)
class Update:
    """What became of a snapshot: whether its assignment is a new one, and how many endpoints have no place in it.

    `newly_left_out` are those of which that was not known.
    """

    changed: bool
    left_out: int
    newly_left_out: Listing = ()


class Catalogue:
    """The resources of all models; `slow_start`, in seconds, is how long a pod takes to count in full."""

    def __init__(self, slow_start: float) -> None:
        self._slow_start = slow_start
        self._models: dict[str, Model] = {}
        self._warming: set[str] = set()
        self._resources: dict[str, dict[str, Resource]] = {ENDPOINTS: {}}
        self._versions: dict[str, dict[str, str]] = {ENDPOINTS: {}}

    @property
    def types(self) -> Iterable[str]:
        """The types of which there can be resources."""
        return self._resources.keys()

    def versions(self, type_url: str) -> Mapping[str, str]:
        """Return the newest version of each resource of a type."""
        return MappingProxyType(self._versions[type_url])

    def resources(self, type_url: str, names: Iterable[str]) -> list[Resource]:
        """Return the newest of each of these resources, ordered by name."""
        resources = self._resources[type_url]
        return [resources[name] for name in sorted(names)]

    def take(self, snapshot: EndpointsSnapshot, now: float, wall: float) -> Update:
        """Put the endpoints of `snapshot` in force; `now` is in monotonic seconds, `wall` in Unix seconds."""
        before = self._models.get(snapshot.model)
        if before is not None and before.endpoints == snapshot.endpoints:
            return Update(changed=False, left_out=len(before.left_out))
        kept, left_out = assignable(snapshot.endpoints)
        born = births(before.births if before is not None else None, kept, now, wall)
        self._models[snapshot.model] = Model(snapshot.endpoints, kept, left_out, born)
        known = {endpoint.id for endpoint in before.left_out} if before is not None else set()
        news = tuple(endpoint for endpoint in left_out if endpoint.id not in known)
        return Update(self._assign(snapshot.model, now), len(left_out), news)

    @property
    def warming(self) -> bool:
        """Whether the weight of any pod is still to change."""
        return bool(self._warming)

    def warm_up(self, now: float) -> list[str]:
        """Give pods that have become warmer their new weights; return the models which that changed."""
        return [model for model in sorted(self._warming) if self._assign(model, now)]

    def _assign(self, name: str, now: float) -> bool:
        model = self._models[name]
        if is_warming(model.births, now, self._slow_start):
            self._warming.add(name)
        else:
            self._warming.discard(name)

        def weigh(endpoint: Endpoint) -> int:
            return weight(model.births.get(endpoint.id), now, self._slow_start)

        return self._put(ENDPOINTS, name, assignment(name, model.kept, weigh))

    def _put(self, type_url: str, name: str, message: bytes) -> bool:
        resource = make_resource(type_url, name, message)
        if self._versions[type_url].get(name) == resource.version:
            return False
        self._resources[type_url][name] = resource
        self._versions[type_url][name] = resource.version
        return True
