"""The errors that a client sees, each with a stable code, and the field and the limit that it is about.

The shape is OpenAI's (`{"error": {"message", "type", "param", "code"}}`), so that the client libraries people
have can read it, plus `limit` where one was passed.
"""

from __future__ import annotations

from copydesk.common.errors import CopydeskError

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


class ApiError(CopydeskError):
    """A request that is answered with an error.

    `status` is the HTTP status, `code` what programs test for, `param` the field at fault, `limit` the limit that
    was passed, `retry_after` the seconds after which a retry makes sense.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        limit: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.limit = limit
        self.retry_after = retry_after
        super().__init__(f"{code}: {message}")

    @property
    def type(self) -> str:
        """The class of error in OpenAI's terms."""
        return _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")


def bad_request(code: str, message: str, *, param: str | None = None, limit: int | None = None) -> ApiError:
    """A request that is the client's to change."""
    return ApiError(400, code, message, param=param, limit=limit)


def body_too_large(limit: int) -> ApiError:
    """More bytes than a request may have."""
    return ApiError(413, "body_too_large", f"The body is larger than {limit} bytes.", limit=limit)


def body_timeout(seconds: float) -> ApiError:
    """A body that did not arrive in time."""
    return ApiError(408, "body_timeout", f"The body did not arrive within {seconds:g} seconds.")


def head_too_large(limit: int) -> ApiError:
    """A request line and headers, or trailers, without end."""
    return ApiError(431, "head_too_large", f"The headers are larger than {limit} bytes.", limit=limit)


def head_timeout(seconds: float) -> ApiError:
    """Headers that did not arrive in time."""
    return ApiError(408, "head_timeout", f"The headers did not arrive within {seconds:g} seconds.")


def unsupported_media_type(found: str | None) -> ApiError:
    """A body that does not claim to be JSON."""
    said = f"not {found!r}" if found else "but none was given"
    message = f"The Content-Type must be application/json in UTF-8, {said}."
    return ApiError(415, "unsupported_media_type", message, param="Content-Type")


def model_not_found(name: str, served: str) -> ApiError:
    """A model that this gateway does not serve."""
    message = f"The model {name[:128]!r} is not served here; {served!r} is."
    return ApiError(404, "model_not_found", message, param="model")


def unauthorized(message: str) -> ApiError:
    """No key, or none that is known."""
    return ApiError(401, "invalid_api_key", message, param="Authorization")


def no_endpoints(waited: float) -> ApiError:
    """No pod to send to, even after waiting for one."""
    message = f"No inference pod became ready within {waited:g} seconds."
    return ApiError(503, "no_endpoints", message, retry_after=1)


def pod_unavailable(reason: str) -> ApiError:
    """The pods that were tried could not take the work."""
    return ApiError(503, "pod_unavailable", f"The inference pods could not answer: {reason}.", retry_after=1)


def overloaded(retry_after_ms: int) -> ApiError:
    """The pods that were tried are full."""
    seconds = max(1, -(-retry_after_ms // 1000))
    return ApiError(429, "overloaded", "The fleet is at its capacity; retry later.", retry_after=seconds)


def deadline_exceeded() -> ApiError:
    """The deadline passed before the answer was there."""
    return ApiError(504, "deadline_exceeded", "The deadline passed before all sentences were corrected.")


def inference_failed(reason: str) -> ApiError:
    """A pod answered, but not with a correction."""
    return ApiError(502, "inference_failed", f"The inference pod failed: {reason}.")


def unexpected() -> ApiError:
    """Our own mistake; the details are in the log, under the request's id."""
    return ApiError(500, "internal_error", "Something broke here; the log says what, under the request's id.")


def not_found(path: str) -> ApiError:
    """No such address."""
    return ApiError(404, "not_found", f"There is nothing at {path[:256]!r}.")


def method_not_allowed(method: str, path: str) -> ApiError:
    """The address exists, the method does not."""
    return ApiError(405, "method_not_allowed", f"{path[:256]!r} does not take {method[:32]}.")
