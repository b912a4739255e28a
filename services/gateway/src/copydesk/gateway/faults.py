"""The errors that a client sees, each with a stable code, and the field and the limit that it is about.

The shape is OpenAI's (`{"error": {"message", "type", "param", "code"}}`), so that the client libraries people
have can read it, plus `limit` where one was passed.
"""

from __future__ import annotations

from copydesk.common.errors import CopydeskError

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}

CLIENT_GONE = 499
"""nginx's code for a client that closed before the answer; it is counted, but nobody is there to get it."""

OURS = (
    "deadline_exceeded",
    "inference_failed",
    "internal_error",
    "keys_unavailable",
    "limits_unavailable",
    "no_endpoints",
    "overloaded",
    "pod_unavailable",
)
"""The codes of errors in requests for work for which the service is to blame."""


class ApiError(CopydeskError):
    """A request that is answered with an error.

    `status` is the HTTP status, `code` what programs test for, `param` the field at fault, `limit` the limit that
    was passed, `retry_after` the seconds after which a retry makes sense. `shed` says that the fleet could not
    take the request in time: not what the client asked is the matter, but how much there is to do.
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
        shed: bool = False,
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.limit = limit
        self.retry_after = retry_after
        self.shed = shed
        super().__init__(f"{code}: {message}")

    @property
    def ours(self) -> bool:
        """Whether the service is to blame for it: not the request, nor the limits of its client."""
        return self.status >= 500 or self.shed

    @property
    def type(self) -> str:
        """The class of error in OpenAI's terms."""
        return _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")


class PodRefusalError(ApiError):
    """A pod says that the request is wrong.

    `reason` is its code for that, `parameter` its name of the field at fault, if any, `said` its message: for APIs
    whose clients can use them.
    """

    def __init__(self, reason: str, said: str, parameter: str) -> None:
        self.reason = reason
        self.said = said
        self.parameter = parameter
        super().__init__(400, "refused_by_model", f"The model refused a sentence: {said}.")


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


def invalid_http() -> ApiError:
    """Bytes that are no request, or that two servers could read as two different ones."""
    return ApiError(400, "invalid_http", "This is no valid HTTP request.")


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


def keys_unavailable() -> ApiError:
    """A key that may be known, but Redis, which has the keys, could not be asked yet."""
    return ApiError(503, "keys_unavailable", "The API keys could not be read yet.", retry_after=1)


def rate_limited(per_second: float, retry_after: int) -> ApiError:
    """A client that asks more often than its key may."""
    message = f"This API key may make {per_second:.6g} requests a second on average."
    return ApiError(429, "rate_limited", message, retry_after=max(1, retry_after))


def too_many_concurrent(limit: int) -> ApiError:
    """A client with more requests underway than its key may have."""
    message = f"This API key may have {limit} requests underway at once."
    return ApiError(429, "too_many_concurrent", message, limit=limit, retry_after=1)


def limits_unavailable() -> ApiError:
    """A client whose rate cannot be checked, where unchecked ones are not let in."""
    return ApiError(503, "limits_unavailable", "The limits of API keys cannot be checked now.", retry_after=1)


def no_endpoints(waited: float) -> ApiError:
    """No pod to send to, even after waiting for one."""
    message = f"No inference pod became ready within {waited:g} s; /readyz says what is missing."
    return ApiError(503, "no_endpoints", message, retry_after=1, shed=True)


def pod_unavailable(reason: str) -> ApiError:
    """The pods that were tried could not take the work."""
    return ApiError(503, "pod_unavailable", f"The inference pods could not answer: {reason}.", retry_after=1)


def overloaded(retry_after_ms: int) -> ApiError:
    """The pods that were tried are full."""
    seconds = max(1, -(-retry_after_ms // 1000))
    message = "The fleet is at its capacity; retry later."
    return ApiError(429, "overloaded", message, retry_after=seconds, shed=True)


def deadline_exceeded(*, shed: bool = False) -> ApiError:
    """The deadline passed before the answer was there; `shed`: before any pod had room for the request."""
    message = "The deadline passed before the answer was complete."
    return ApiError(504, "deadline_exceeded", message, shed=shed)


def inference_failed(reason: str) -> ApiError:
    """A pod answered, but with nothing of use."""
    return ApiError(502, "inference_failed", f"The inference pod failed: {reason}.")


def unexpected() -> ApiError:
    """Our own mistake; the details are in the log, under the request's id."""
    return ApiError(500, "internal_error", "Something broke here; the log says what, under the request's id.")


def not_found(path: str) -> ApiError:
    """No such address."""
    return ApiError(404, "not_found", f"There is nothing at {path[:256]!r}.")


def origin_not_allowed(origin: str) -> ApiError:
    """A browser asks on behalf of a page that is kept out."""
    return ApiError(
        403,
        "origin_not_allowed",
        f"Pages of {origin} may not use this gateway; whoever runs it can add the origin to "
        "COPYDESK_GATEWAY_CORS_ORIGINS.",
    )


def method_not_allowed(method: str, path: str) -> ApiError:
    """The address exists, the method does not."""
    return ApiError(405, "method_not_allowed", f"{path[:256]!r} does not take {method[:32]}.")
