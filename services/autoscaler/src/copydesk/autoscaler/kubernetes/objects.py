"""What of Kubernetes' objects the autoscaler reads and writes, as they stand on the wire."""

from __future__ import annotations

from collections.abc import Mapping

from copydesk.kube.objects import Metadata, Wire


class WorkloadSpec(Wire, frozen=True):
    """`replicas`: the pods that are asked for. The server fills it in, so an object without it is none of its."""

    replicas: int


class Workload(Wire, frozen=True):
    """A Deployment or a StatefulSet of apps/v1."""

    metadata: Metadata
    spec: WorkloadSpec


class ScaleSpec(Wire, frozen=True):
    """`replicas`: the pods that are asked for; the server leaves out a 0."""

    replicas: int = 0


class Scale(Wire, frozen=True):
    """A Scale of autoscaling/v1; its version is that of the workload that it belongs to."""

    metadata: Metadata
    spec: ScaleSpec


class Mark(Wire, frozen=True):
    """Annotations to add to an object that is still of the version `resource_version`."""

    resource_version: str
    annotations: Mapping[str, str]


class Marking(Wire, frozen=True):
    """The change that puts a mark on an object."""

    metadata: Mark


class ScaleTarget(Wire, frozen=True):
    """What a HorizontalPodAutoscaler scales, in its own namespace."""

    kind: str = ""
    name: str = ""


class PodAutoscalerSpec(Wire, frozen=True):
    """Of a HorizontalPodAutoscaler, only what it scales."""

    scale_target_ref: ScaleTarget


class PodAutoscaler(Wire, frozen=True):
    """A HorizontalPodAutoscaler; each has a form in autoscaling/v1, in whatever version it was written."""

    metadata: Metadata
    spec: PodAutoscalerSpec


class PodAutoscalers(Wire, frozen=True):
    """All of a namespace."""

    items: tuple[PodAutoscaler, ...] | None = None
