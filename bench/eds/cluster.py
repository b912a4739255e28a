"""A cluster that changes: Services, their EndpointSlices as an API server writes them, one change after another.

A change is what a roll-out is made of: a pod is replaced by another one (its name tells when, so that whoever sees
it knows how long it took), or its readiness flips. No I/O.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from random import Random
from typing import Any

NAMESPACE = "bench"
PORT = 9000
MARK = "-t"
"""Before the microseconds, in the name of a pod that has come by a change."""


@dataclass(slots=True)
class Pod:
    """One endpoint; `born_us` is 0 for those that were there from the start."""

    name: str
    address: str
    zone: str
    node: str
    born_us: int = 0
    ready: bool = True

    def wire(self) -> dict[str, Any]:
        """As it stands in a slice."""
        conditions = {"ready": self.ready, "serving": self.ready, "terminating": False}
        uid = str(uuid.uuid5(uuid.NAMESPACE_URL, self.name))
        reference = {"kind": "Pod", "namespace": NAMESPACE, "name": self.name, "uid": uid}
        return {
            "addresses": [self.address],
            "conditions": conditions,
            "targetRef": reference,
            "nodeName": self.node,
            "zone": self.zone,
        }


@dataclass(slots=True)
class Model:
    """One Service with one slice of pods."""

    name: str
    pods: list[Pod]
    encoded: list[str] = field(default_factory=list)

    def encode(self) -> None:
        """Encode every pod once; changes encode theirs again."""
        self.encoded = [json.dumps(pod.wire()) for pod in self.pods]


class Cluster:
    """`models` of equal size; `revision` grows with each change, as the store's does."""

    def __init__(self, services: int, endpoints: int, seed: int = 1) -> None:
        self.revision = 1
        self.replaced = 0
        self._random = Random(seed)
        self._addresses = 0
        each = endpoints // services
        self.models = [
            Model(f"model-{number:02d}", [self._pod(f"pod-{number:02d}-{n:03d}", n) for n in range(each)])
            for number in range(services)
        ]
        for model in self.models:
            model.encode()

    def _pod(self, name: str, number: int, born_us: int = 0) -> Pod:
        self._addresses += 1
        a, b, c = self._addresses >> 16, (self._addresses >> 8) & 255, self._addresses & 255
        return Pod(name, f"10.{a}.{b}.{c}", f"zone-{'abc'[number % 3]}", f"node-{number % 40:02d}", born_us)

    def change(self, now_us: int) -> Model:
        """Change one pod at `now_us`, in monotonic microseconds; return its model."""
        model = self._random.choice(self.models)
        number = self._random.randrange(len(model.pods))
        self.revision += 1
        if self._random.random() < 0.5:
            self.replaced += 1
            name = f"pod-{model.name[-2:]}-{number:03d}{MARK}{now_us}"
            model.pods[number] = self._pod(name, number, now_us)
        else:
            model.pods[number].ready = not model.pods[number].ready
        model.encoded[number] = json.dumps(model.pods[number].wire())
        return model

    def services(self) -> str:
        """The Services as a list."""
        items = ",".join(json.dumps(self._service(model)) for model in self.models)
        return self._list("ServiceList", "v1", items)

    def slices(self) -> str:
        """The slices as a list."""
        items = ",".join(self.slice_of(model) for model in self.models)
        return self._list("EndpointSliceList", "discovery.k8s.io/v1", items)

    def _list(self, kind: str, version: str, items: str) -> str:
        metadata = json.dumps({"resourceVersion": str(self.revision)})
        return f'{{"kind":"{kind}","apiVersion":"{version}","metadata":{metadata},"items":[{items}]}}'

    def _service(self, model: Model) -> dict[str, Any]:
        labels = {"copydesk/model": model.name}
        metadata = {"name": model.name, "namespace": NAMESPACE, "resourceVersion": "1", "labels": labels}
        return {"metadata": metadata, "spec": {"ipFamilies": ["IPv4"], "clusterIP": "None"}}

    def slice_of(self, model: Model) -> str:
        """The slice of a model as it is now."""
        metadata = json.dumps(
            {
                "name": f"{model.name}-abcde",
                "namespace": NAMESPACE,
                "resourceVersion": str(self.revision),
                "labels": {"kubernetes.io/service-name": model.name},
            }
        )
        ports = f'[{{"name":"rpc","port":{PORT},"protocol":"TCP"}}]'
        endpoints = ",".join(model.encoded)
        return f'{{"metadata":{metadata},"addressType":"IPv4","endpoints":[{endpoints}],"ports":{ports}}}'
