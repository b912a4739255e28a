"""What settings have to say before the autoscaler can begin in Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.kubernetes.connection import Named, Place, connect
from copydesk.autoscaler.kubernetes.target import TargetError
from copydesk.kube.trouble import KubernetesConfigError


@pytest.fixture
def place(tmp_path: Path) -> Place:
    config = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "prod"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return Place(path, "copydesk-autoscaler", 6.0)


@pytest.mark.parametrize(
    ("named", "workload"),
    [
        (Named(), "Deployment prod/gec-en"),
        (Named("statefulsets/pods"), "StatefulSet prod/pods"),
        (Named("deployments/pods", "fleet"), "Deployment fleet/pods"),
    ],
)
async def test_what_is_not_said_is_the_deployment_of_the_model_where_this_process_runs(
    place: Place, named: Named, workload: str
) -> None:
    actuator, leadership = connect(place, {"gec-en": named})
    with pytest.raises(ActuatorError, match=f"{workload} cannot be read.*the API server cannot be reached"):
        await actuator.size("gec-en")
    assert (leadership.epoch, leadership.is_leader(0.0)) == (0, False)
    await actuator.close()
    await leadership.close()


def test_what_cannot_be_scaled_and_a_server_that_nothing_leads_to_are_refused(place: Place) -> None:
    with pytest.raises(TargetError, match="'prod/daemonsets/a' names nothing to scale"):
        connect(place, {"gec-en": Named("daemonsets/a")})
    with pytest.raises(KubernetesConfigError, match="not found"):
        connect(Place(Path("/absent"), "lease", 6.0), {"gec-en": Named()})
