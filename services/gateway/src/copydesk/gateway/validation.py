"""From the bytes of a request to what is to be corrected, or to the error that says what is wrong with them.

Pure: no I/O, nothing of HTTP but its header values. Decoding is msgspec's in one pass; only a body that it
refuses is looked at again, to say where.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
from msgspec import UNSET, UnsetType

from copydesk.common.rpc import Priority
from copydesk.gateway.faults import ApiError, bad_request, model_not_found, unsupported_media_type
from copydesk.gateway.limits import Limits
from copydesk.gateway.schemas import CorrectRequest

DEADLINE_HEADER = "X-Request-Deadline-Ms"
PRIORITY_HEADER = "X-Request-Priority"
SESSION_HEADER = "X-Request-Session"
MOST_MS = 10**15 - 1

SHOWN = 200
"""Characters of a decoder's message, or of a place in a request, that are passed on: they may be the client's."""

AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
"""Where msgspec puts the place of what is wrong in its messages."""

_DECODER = msgspec.json.Decoder(CorrectRequest)
_UNKNOWN = re.compile(r"unknown field `(?P<name>.*)`", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")
_CHARSET = re.compile(r"\s*charset\s*=\s*\"?utf-?8\"?\s*", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,12}")
_MILLISECONDS = re.compile(r"[0-9]{1,15}")
_ENGLISH = re.compile(r"auto|en([-_][a-z0-9]{1,8})*", re.IGNORECASE)

_FIELDS = "text, texts, model, priority and language"
_PRIORITIES = {"interactive": Priority.INTERACTIVE, "batch": Priority.BATCH}

_Step = str | int


class Task(msgspec.Struct, frozen=True):
    """Texts to correct; `single` says that the client sent `text` rather than `texts`.

    `priority` is its name in the body, None where the body says nothing of it.
    """

    texts: tuple[str, ...]
    single: bool
    priority: str | None = None


def parse_task(body: bytes, limits: Limits, model: str) -> Task:
    """Return the task that `body` describes; `model` is the one served. Raises `ApiError`, always a 4xx."""
    request = _decode(body)
    if request.model is not UNSET and request.model != model:
        _check_characters("model", request.model)
        raise model_not_found(request.model, model)
    _check_language(request.language)
    task = _task(request)
    if len(task.texts) > limits.texts:
        message = f"{len(task.texts)} texts are too many: at most {limits.texts}."
        raise bad_request("too_many_texts", message, param="texts", limit=limits.texts)
    _check_texts(task, limits)
    return task


def check_content_type(value: str | None) -> None:
    """Accept JSON in UTF-8 alone.

    Demanding the header also keeps other web sites out: a browser sends it across origins only with permission.
    """
    if value == "application/json":
        return
    kind, _, parameters = (value or "").partition(";")
    known = kind.strip().lower() == "application/json"
    if not known or not all(_CHARSET.fullmatch(part) for part in parameters.split(";") if part.strip()):
        raise unsupported_media_type(value)


def parse_deadline(value: str | None, default_ms: int, limits: Limits) -> int:
    """Return the milliseconds that a request may take."""
    if value is None:
        return default_ms
    ms = _milliseconds(value)
    if not 1 <= ms <= limits.max_deadline_ms:
        message = f"{DEADLINE_HEADER} must be a whole number of milliseconds from 1 to {limits.max_deadline_ms}."
        raise bad_request("invalid_deadline", message, param=DEADLINE_HEADER, limit=limits.max_deadline_ms)
    return ms


@lru_cache(maxsize=1024)
def _milliseconds(value: str) -> int:
    """Return 0 for what is no whole number; clients send few different ones, again and again."""
    return int(value) if _DIGITS.fullmatch(value.strip()) else 0


def parse_since(value: str | None) -> int:
    """Return the Unix milliseconds after which something is wanted; without a value, everything is."""
    if value is None:
        return 0
    if _MILLISECONDS.fullmatch(value) is None:
        raise bad_request("invalid_since", "since must be a time in whole Unix milliseconds.", param="since")
    return int(value)


def parse_priority(header: str | None, said: str | None = None) -> Priority:
    """Return the priority of a request; `said` is what its body says, which goes before the header."""
    if header is None:
        return Priority.INTERACTIVE if said is None else _PRIORITIES[said]
    priority = _PRIORITIES.get(header.strip().lower())
    if priority is None:
        raise _no_priority(PRIORITY_HEADER)
    return priority if said is None else _PRIORITIES[said]


def _decode(body: bytes) -> CorrectRequest:
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise undecodable(body, error) from None


def _explain(message: str) -> ApiError:
    unknown = _UNKNOWN.search(message)
    if unknown is not None:
        name = unknown["name"][:128]
        text = f"{name!r} is not a field of this request; {_FIELDS} are."
        return bad_request("unknown_field", text, param=name)
    at = AT.search(message)
    path = at["path"] if at else None
    if path == "priority" and "enum" in message:
        return _no_priority(path)
    expected = message[: at.start()] if at else message
    return bad_request("invalid_type", f"{path or 'The body'}: {expected.replace('`', '')}.", param=path)


def undecodable(body: bytes, error: Exception) -> ApiError:
    """Return the refusal of a body that does not decode: text that is no Unicode told from text that is no JSON.

    Python's own decoder is lenient on surrogates, escaped or raw: what it lets through shows in which field
    they are.
    """
    try:
        lenient = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return bad_request("invalid_json", f"The body is not valid JSON: {error}.")
    for steps, value in _strings(lenient):
        if _SURROGATE.search(value) is not None:
            return _no_unicode(_place(steps)[:SHOWN] or None)
    return bad_request("invalid_json", f"The body is not valid JSON: {error}.")


def _strings(value: object) -> Iterator[tuple[Sequence[_Step], str]]:
    """Yield the strings in what stands in a request, keys included, each with the steps to it, until the next.

    Steps, and not places: a long name around a long list would be written out for each item of the list.
    """
    steps: list[_Step] = []
    entered: list[Iterator[tuple[_Step, object]]] = []
    while True:
        if isinstance(value, str):
            yield steps, value
        elif isinstance(value, list):
            steps.append(0)
            entered.append(enumerate(value))
        elif isinstance(value, dict):
            yield from ((steps, name) for name in value)
            steps.append("")
            entered.append(iter(value.items()))
        while entered and (following := next(entered[-1], None)) is None:
            entered.pop()
            steps.pop()
        if not entered or following is None:
            return
        steps[-1], value = following


def _place(steps: Sequence[_Step]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _no_priority(param: str) -> ApiError:
    return bad_request("invalid_priority", f"{param} must be interactive or batch.", param=param)


def _check_language(language: str | UnsetType) -> None:
    """Accept English in any of its varieties (BCP 47 tags), and `auto`: the model knows nothing else."""
    if language is UNSET or _ENGLISH.fullmatch(language) is not None:
        return
    message = f"{language[:64]!r} is not served: language may be auto, en, or a variety of it such as en-US."
    raise bad_request("unsupported_language", message, param="language")


def _task(request: CorrectRequest) -> Task:
    text, texts = request.text, request.texts
    priority = None if request.priority is UNSET else request.priority
    if text is UNSET:
        if texts is UNSET:
            raise bad_request("missing_text", "One of text and texts is needed.", param="text")
        if not texts:
            raise bad_request("empty_text", "texts is empty: at least one text is needed.", param="texts")
        return Task(tuple(texts), False, priority)
    if texts is not UNSET:
        raise bad_request("ambiguous_text", "Only one of text and texts may be given.", param="texts")
    return Task((text,), True, priority)


def _check_texts(task: Task, limits: Limits) -> None:
    total = 0
    for index, text in enumerate(task.texts):
        param = "text" if task.single else f"texts[{index}]"
        total += len(text)
        if total > limits.characters:
            what = "The text has" if task.single else "The texts together have"
            message = f"{what} more than {limits.characters} characters."
            raise bad_request("text_too_long", message, param=param, limit=limits.characters)
        _check_characters(param, text)
        if not text:
            raise bad_request("empty_text", f"{param} is empty.", param=param)
        if text.isspace():
            raise bad_request("blank_text", f"{param} is nothing but white space.", param=param)


def _check_characters(param: str, text: str) -> None:
    if "\0" in text:
        raise bad_request("nul_character", f"{param} contains a NUL character.", param=param)
    if not text.isascii() and _SURROGATE.search(text) is not None:
        raise _no_unicode(param)


def _no_unicode(param: str | None) -> ApiError:
    message = f"{param or 'The body'} is not Unicode text: it has a lone surrogate, or bytes that are no UTF-8."
    return bad_request("invalid_unicode", message, param=param)
