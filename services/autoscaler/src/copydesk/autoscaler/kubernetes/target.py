"""What is scaled: a Deployment or a StatefulSet that runs the pods of one model."""

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


class TargetError(CopydeskError):
    """`text` does not name what to scale for `model`."""

    exit_code = 2

    def __init__(self, model: str, text: str) -> None:
        self.model = model
        self.text = text
        super().__init__(
            f"{model}: {text!r} names nothing to scale; expected NAME, KIND/NAME or NAMESPACE/KIND/NAME "
            "with the kind deployment or statefulset"
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
        return f"apis/apps/v1/namespaces/{self.namespace}/{self.kind.lower()}s/{self.name}"


def read_target(model: str, text: str, namespace: str) -> Target:
    """Understand `NAME`, `KIND/NAME` or `NAMESPACE/KIND/NAME`; what is left out is a Deployment in `namespace`.

    Raises:
        TargetError: It is none of these.
    """
    *rest, name = text.split("/")
    kind = _kind(rest.pop() if rest else Kind.DEPLOYMENT)
    place = rest.pop() if rest else namespace
    if rest or kind is None or not _NAME.fullmatch(name) or not _NAME.fullmatch(place):
        raise TargetError(model, text)
    return Target(place, kind, name)


def _kind(text: str) -> Kind | None:
    return next((kind for kind in Kind if kind.lower() == text.lower()), None)
