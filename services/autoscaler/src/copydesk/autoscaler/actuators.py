"""Which actuator and which leadership belong to the settings."""

from __future__ import annotations

import time
from collections.abc import Sequence

from copydesk.autoscaler.actuator import Actuator, Leadership
from copydesk.autoscaler.dry import Alone, DryActuator
from copydesk.autoscaler.local import LocalActuator, LocalLeadership
from copydesk.autoscaler.pilot import Pilot
from copydesk.autoscaler.plan import Plan, PlanError
from copydesk.autoscaler.settings import ActuatorKind, AutoscalerSettings
from copydesk.common.bus import Bus


def make_actuator(settings: AutoscalerSettings, pilots: Sequence[Pilot], bus: Bus) -> tuple[Actuator, Leadership]:
    """Make both; raise `PlanError` for settings with which nothing can begin."""
    by_model = {pilot.plan.model: pilot for pilot in pilots}
    if settings.actuator is ActuatorKind.KUBERNETES:
        return _kubernetes(settings, [pilot.plan for pilot in pilots])
    if settings.actuator is ActuatorKind.SHADOW:
        return DryActuator(lambda model: by_model[model].observer.pods.present), Alone(int(time.time() * 1000))
    leadership = LocalLeadership(bus, by_model)
    return LocalActuator(bus, by_model, leadership.surpass), leadership


def _kubernetes(settings: AutoscalerSettings, plans: Sequence[Plan]) -> tuple[Actuator, Leadership]:
    # Imported here, since a local fleet needs no client of Kubernetes.
    from copydesk.autoscaler.kubernetes.connection import Named, Place, connect
    from copydesk.autoscaler.kubernetes.target import TargetError
    from copydesk.kube.trouble import KubernetesConfigError

    lease_seconds = float(settings.lease_seconds)
    place = Place(settings.kube_config, settings.lease_name, lease_seconds, settings.kube_namespace)
    try:
        return connect(place, {plan.model: Named(plan.workload, plan.namespace) for plan in plans})
    except KubernetesConfigError as error:
        raise PlanError("KUBE_CONFIG", str(error)) from error
    except TargetError as error:
        raise PlanError("MODELS_FILE" if settings.models_file else "KUBE_WORKLOAD", str(error)) from error
