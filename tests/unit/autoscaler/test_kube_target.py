"""Which workload runs a model: what settings may say, and what is refused."""

from __future__ import annotations

import pytest

from copydesk.autoscaler.kubernetes.target import Kind, Target, TargetError, read_target


@pytest.mark.parametrize(
    ("workload", "kind", "name"),
    [
        ("", Kind.DEPLOYMENT, "gec-en"),
        ("deployments/pods", Kind.DEPLOYMENT, "pods"),
        ("statefulsets/gec-en", Kind.STATEFUL_SET, "gec-en"),
        ("replicasets/gec.1", Kind.REPLICA_SET, "gec.1"),
    ],
)
def test_a_workload_is_named_by_its_collection_and_else_the_deployment_of_the_model(
    workload: str, kind: Kind, name: str
) -> None:
    assert read_target("gec-en", workload, "prod") == Target("prod", kind, name)


def test_size_and_mark_have_paths_of_their_own() -> None:
    target = read_target("gec-en", "statefulsets/pods", "prod")
    assert target.scale_path == "apis/apps/v1/namespaces/prod/statefulsets/pods/scale"
    assert target.status_path == "apis/apps/v1/namespaces/prod/statefulsets/pods/status"
    assert str(target) == "StatefulSet prod/pods"


@pytest.mark.parametrize(
    ("model", "workload", "namespace"),
    [
        ("gec-en", "pods/a", "prod"),
        ("gec-en", "deployments/", "prod"),
        ("gec-en", "deployments/a/scale", "prod"),
        ("gec-en", "deployments/../secrets", "prod"),
        ("gec-en", "gec-en", "prod"),
        ("gec-en", "deployments/gec-en", "Prod"),
        ("GEC_en", "", "prod"),
    ],
)
def test_what_names_no_workload_is_refused_with_exit_code_2(model: str, workload: str, namespace: str) -> None:
    with pytest.raises(TargetError, match=model) as caught:
        read_target(model, workload, namespace)
    assert caught.value.exit_code == 2
