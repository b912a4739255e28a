"""What can go wrong between a service and an API server."""

from __future__ import annotations

from copydesk.common.errors import CopydeskError


class KubernetesError(CopydeskError):
    """Anything that an API server, or the way to it, did not do as asked."""


class KubernetesConfigError(KubernetesError):
    """There is no usable configuration of how to reach the API server: `problem` says why."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(problem)


class UnreachableError(KubernetesError):
    """No answer came: nobody listens, the connection was lost, or the time was over."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the API server cannot be reached: {reason}")


class RefusedError(KubernetesError):
    """The server answered, with an error: the HTTP `status`, and its `message`.

    `retry_after` is for how many seconds it asks to be left alone (0: it does not say).
    """

    def __init__(self, status: int, message: str, retry_after: float = 0.0) -> None:
        self.status = status
        self.message = message
        self.retry_after = retry_after
        super().__init__(f"the API server refused: {status} {message}")


class ExpiredError(KubernetesError):
    """What was asked for is older than what the server remembers (410): all is to be listed again."""


class NonsenseError(KubernetesError):
    """The answer is not what an API server says: `problem` tells how."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"this is no answer of an API server: {problem}")


class TooLargeError(NonsenseError):
    """The answer has more than `limit` bytes, and was not read to its end."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"more than {limit} bytes")


def is_denied(error: Exception) -> bool:
    """Say whether a right is missing or credentials are no good: the trouble that waiting does not mend."""
    return isinstance(error, RefusedError) and error.status in (401, 403)
