"""What is scaled: the workload that runs the pods of one model, a Deployment in most places."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from copydesk.common.errors import CopydeskError

# A DNS subdomain, as the names of workloads and namespaces are.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Kind(enum.StrEnum):
    """The kinds that can be scaled, by the names that Kubernetes gives them."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    REPLICA_SET = "ReplicaSet"

    @property
    def plural(self) -> str:
        """The name of the collection, as in paths and rights."""
        return f"{self.lower()}s"


class TargetError(CopydeskError):
    """`text` does not name what to scale for `model`."""

    exit_code = 2

    def __init__(self, model: str, text: str) -> None:
        self.model = model
        self.text = text
        super().__init__(
            f"{model}: {text!r} names nothing to scale; expected deployments/NAME, statefulsets/NAME "
            "or replicasets/NAME"
        )


@dataclass(frozen=True, slots=True)
class Target:
    """The workload `name` of `kind` in `namespace`."""

    namespace: str
    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def scale_path(self) -> str:
        """Where its size is read and written."""
        return f"{self._path}/scale"

    @property
    def status_path(self) -> str:
        """Where all of it is read, and its annotations, but not what it runs, can be written."""
        return f"{self._path}/status"

    @property
    def _path(self) -> str:
        return f"apis/apps/v1/namespaces/{self.namespace}/{self.kind.plural}/{self.name}"


def read_target(model: str, workload: str, namespace: str) -> Target:
    """Understand `workload`, as deployments/NAME; if it is empty, the Deployment that is named as the model.

    Raises:
        TargetError: It names nothing that can be scaled, or `namespace` is none.
    """
    collection, _, name = (workload or f"{Kind.DEPLOYMENT.plural}/{model}").partition("/")
    kind = next((kind for kind in Kind if kind.plural == collection), None)
    if kind is None or not _NAME.fullmatch(name) or not _NAME.fullmatch(namespace):
        raise TargetError(model, f"{namespace}/{collection}/{name}")
    return Target(namespace, kind, name)
