"""Others that scale the same workload: with two autoscalers, neither size lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from copydesk.autoscaler.kubernetes.objects import PodAutoscaler, PodAutoscalers
from copydesk.autoscaler.kubernetes.target import Target
from copydesk.common.telemetry import get_logger
from copydesk.kube.api import Api
from copydesk.kube.trouble import KubernetesError, is_denied

LOOK_SECONDS = 30.0
"""Autoscalers come and go by hand; half a minute after that is soon enough."""

_log = get_logger(__name__)


class Rivals:
    """Knows the HorizontalPodAutoscalers where targets are, and warns of each rival once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, tuple[PodAutoscaler, ...]] = {}
        self._looked: dict[str, float] = {}
        self._warned: set[tuple[Target, str]] = set()
        self._complaint = ""

    async def of(self, target: Target) -> str | None:
        """Return the name of a HorizontalPodAutoscaler that scales `target` too, None if none is known.

        That they cannot be read is said in the log, and no reason not to scale.
        """
        now = asyncio.get_running_loop().time()
        if now - self._looked.get(target.namespace, -LOOK_SECONDS) >= LOOK_SECONDS:
            self._looked[target.namespace] = now
            await self._look(target.namespace)
        rival = rival_of(target, self._known.get(target.namespace, ()))
        if rival is not None and (target, rival) not in self._warned:
            self._warned.add((target, rival))
            _log.warning("second_autoscaler", target=str(target), horizontal_pod_autoscaler=rival)
        return rival

    async def _look(self, namespace: str) -> None:
        path = f"apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers"
        try:
            self._known[namespace] = (await self._api.get(path, PodAutoscalers)).items or ()
        except KubernetesError as error:
            if is_denied(error) and str(error) != self._complaint:
                self._complaint = str(error)
                _log.warning("second_autoscaler_unseen", namespace=namespace, problem=self._complaint)


def rival_of(target: Target, autoscalers: Iterable[PodAutoscaler]) -> str | None:
    """Return the name of the first of a namespace's `autoscalers` that names `target`."""
    for each in autoscalers:
        scaled = each.spec.scale_target_ref
        if (scaled.kind, scaled.name) == (target.kind, target.name):
            return each.metadata.name
    return None
