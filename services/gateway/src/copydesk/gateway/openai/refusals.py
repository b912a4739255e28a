"""What is wrong with a request, in OpenAI's codes: by what the decoder says of it, or by what a pod says.

A field that is known but not supported gets a code of its own, so that a client can tell it from a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from copydesk.gateway import faults
from copydesk.gateway.faults import ApiError, PodRefusalError, bad_request
from copydesk.gateway.validation import AT, SHOWN

UNSUPPORTED: Mapping[str, str] = {
    "audio": "answers are text",
    "best_of": "one answer a prompt is made",
    "echo": "an answer does not repeat its prompt",
    "function_call": "there are no functions",
    "functions": "there are no functions",
    "logit_bias": "scores of tokens cannot be shifted one by one",
    "logprobs": "probabilities of tokens are not told",
    "modalities": "answers are text",
    "n": "one answer a prompt is made",
    "prediction": "answers cannot be predicted by the client",
    "prompt_cache_retention": "prompts are not kept",
    "reasoning_effort": "models here do not reason at will",
    "response_format": "only text is made",
    "service_tier": "there is one tier; priority says what may wait",
    "store": "nothing is stored",
    "stream_options.continuous_usage_stats": "usage is told at the end",
    "stream_options.include_obfuscation": "events are not padded",
    "suffix": "texts are continued at their end",
    "tool_choice": "there are no tools",
    "tools": "there are no tools",
    "top_logprobs": "probabilities of tokens are not told",
    "verbosity": "models here are as verbose as they are",
    "web_search_options": "there is no search",
    "messages[].annotations": "only text is taken",
    "messages[].audio": "only text is taken",
    "messages[].content[].type": "only parts of type 'text' are taken",
    "messages[].content[].file": "only parts of type 'text' are taken",
    "messages[].content[].image_url": "only parts of type 'text' are taken",
    "messages[].content[].input_audio": "only parts of type 'text' are taken",
    "messages[].function_call": "there are no functions",
    "messages[].name": "roles are all that tells speakers apart",
    "messages[].refusal": "only content is taken",
    "messages[].tool_call_id": "there are no tools",
    "messages[].tool_calls": "there are no tools",
}
"""Places in a request, list indices left out, of what is not supported, and why."""

_ROLES = "roles are system, developer, user and assistant"

_FIELD = re.compile(r"Object (?P<wrong>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_INDEX = re.compile(r"\[\d+\]")

_CODES_OF_PODS = {
    "context_exceeded": "context_length_exceeded",
    "empty_prompt": "empty_prompt",
    "invalid_parameter": "invalid_value",
    "invalid_sampling": "invalid_value",
    "messages_refused": "messages_refused",
    "prompt_too_long": "context_length_exceeded",
    "unknown_role": "invalid_value",
    "unknown_token": "unknown_token",
    "unsupported_parameter": "unsupported_parameter",
}


def unsupported(param: str, reason: str) -> ApiError:
    """A field that OpenAI's API has and that means nothing here."""
    return bad_request("unsupported_parameter", f"{param} is not supported here: {reason}.", param=param)


def explain(message: str) -> ApiError:
    """Say in a client's terms what msgspec's ValidationError says."""
    at = AT.search(message)
    path, said = (at["path"], message[: at.start()]) if at else ("", message)
    field = _FIELD.fullmatch(said)
    if field is not None:
        path = f"{path}.{field['name']}".removeprefix(".")
    if field is not None and field["wrong"] == "missing required":
        return bad_request("missing_required_parameter", f"{path} is missing.", param=path)
    reason = _why_unsupported(path)
    if reason is not None:
        return unsupported(path[:SHOWN], reason)
    if field is None:
        return _wrong_value(path, said)
    return bad_request("unknown_field", f"{path[:SHOWN]!r} is not a field of this request.", param=path[:SHOWN])


def of_pod(refusal: PodRefusalError, fields: Mapping[str, str]) -> ApiError:
    """Say it with the field that the client sent; `fields` tells which, where the pod has another name for it.

    Only what the client can change is a 400: a pod that does not understand what it is asked is none of its doing.
    """
    if refusal.reason == "bad_payload":
        return faults.inference_failed("it does not understand what it is asked")
    code = _CODES_OF_PODS.get(refusal.reason, refusal.code)
    param = fields.get(refusal.parameter, refusal.parameter)
    rest = refusal.said.removeprefix(refusal.parameter)
    said = refusal.said if rest == refusal.said else param + rest
    return bad_request(code, f"{said}.", param=param or None)


def _why_unsupported(path: str) -> str | None:
    place = _INDEX.sub("[]", path)
    for known, reason in UNSUPPORTED.items():
        if place == known or place.startswith((f"{known}.", f"{known}[")):
            return reason
    return None


def _wrong_value(path: str, said: str) -> ApiError:
    """Tell a value of the wrong type from one that is out of its bounds."""
    if path == "priority":
        return bad_request("invalid_priority", "priority must be interactive or batch.", param=path)
    code = "invalid_type" if ", got " in said else "invalid_value"
    said = said.replace("`", "")[:SHOWN]
    if path.endswith(".role") and code == "invalid_value":
        said = f"{said}; {_ROLES}"
    return bad_request(code, f"{path or 'The body'}: {said}.", param=path or None)
