"""What goes wrong between the autoscaler and an API server, in sentences for whoever has to mend it."""

from __future__ import annotations

from copydesk.autoscaler.kubernetes.target import Target
from copydesk.kube.trouble import KubernetesError, RefusedError, is_denied

NOT_FOUND = 404
CONFLICT = 409


def sentence(error: KubernetesError, target: Target) -> str:
    """Say what `error` means for `target`."""
    if is_denied(error):
        return f"{target} is out of bounds, a right or a valid token is missing: {error}"
    if isinstance(error, RefusedError) and error.status == NOT_FOUND:
        return f"there is no {target}"
    return f"{target} cannot be read or resized: {error}"


def is_conflict(error: KubernetesError) -> bool:
    """Say whether somebody else wrote first: to be read again."""
    return isinstance(error, RefusedError) and error.status == CONFLICT
