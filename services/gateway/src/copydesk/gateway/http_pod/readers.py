"""From what a server answers to the text that it wrote, or to the fault that says why there is none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from copydesk.common.rpc import Fault, Status
from copydesk.common.tasks import GeneratedText, Stopped

RETRY_AFTER_MS = 1_000
"""When to come back to a server that is full and does not say when."""

SHOWN = 500
"""Characters of a server's message that are passed on."""

_CONTEXT = re.compile(r"context.?length|context window|max_model_len", re.IGNORECASE)
_DIGITS = re.compile(rb"[0-9]{1,4}")

_FINISHES = {"stop": Stopped.STOP, "length": Stopped.LENGTH}


class Unreadable(ValueError):  # noqa: N818 - says what the answer is
    """An answer that is none, or not to its end."""


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    @property
    def written(self) -> str:
        said = self.message or self.delta
        return (self.text if said is None else said.content) or ""


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = 0


class _Answer(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Answer).decode


class Reader(Protocol):
    """Reads the body of one answer with status 200."""

    def feed(self, data: bytes) -> str:
        """Take more of it; return the text that it adds, where the answer is streamed. Raises `Unreadable`."""
        ...

    def end(self) -> GeneratedText:
        """Return the text, when that was all. Raises `Unreadable`."""
        ...


class WholeReader:
    """Reads an answer that comes as one JSON object."""

    def __init__(self) -> None:
        self._body = bytearray()

    def feed(self, data: bytes) -> str:
        """Take more of it."""
        self._body += data
        return ""

    def end(self) -> GeneratedText:
        """Return the text."""
        answer = _read(bytes(self._body))
        if not answer.choices:
            raise Unreadable("it has no choice")
        choice = answer.choices[0]
        return _text(choice.written, choice, answer.usage)


class EventReader:
    """Reads an answer that comes as server-sent events, in whatever pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._parts: list[str] = []
        self._last: _Choice | None = None
        self._usage: _Usage | None = None

    def feed(self, data: bytes) -> str:
        """Take more of it, and return the text that it adds."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        text = "".join(self._line(line.rstrip(b"\r")) for line in lines)
        if text:
            self._parts.append(text)
        return text

    def end(self) -> GeneratedText:
        """Return the text."""
        if self._last is None:
            raise Unreadable("it ends before the text does")
        return _text("".join(self._parts), self._last, self._usage)

    def _line(self, line: bytes) -> str:
        if not line.startswith(b"data:"):
            return ""
        content = line.removeprefix(b"data:").strip()
        if content == b"[DONE]":
            return ""
        event = _read(content)
        self._usage = event.usage or self._usage
        text = ""
        for choice in event.choices:
            text += choice.written
            if choice.finish_reason is not None:
                self._last = choice
        return text


def refusal(status: int, headers: Mapping[bytes, bytes], body: bytes, *, chat: bool) -> tuple[Status, Fault]:
    """Say what an answer means that is no success. 429 and 503 are back-pressure, and no failure."""
    said, param = _error(body)
    message = said[:SHOWN] or f"the server answers with status {status}"
    if status in (429, 503):
        return Status.OVERLOADED, Fault("queue_full", message, _retry_after_ms(headers))
    if status not in (400, 413, 422):
        return Status.INTERNAL, Fault("server_failed", message)
    return Status.INVALID, _mistake(said, message, param, "messages" if chat else "prompt")


def _mistake(said: str, message: str, param: str, prompt: str) -> Fault:
    """What is wrong with a request, in the codes of pods; vLLM has no codes of its own for it, but words."""
    if "out of vocabulary" in said:
        return Fault("unknown_token", message, parameter=prompt)
    if _CONTEXT.search(said) is None:
        return Fault("invalid_parameter", message, parameter=param)
    if "max_tokens" in said or "max_completion_tokens" in said:
        return Fault("context_exceeded", message, parameter="max_tokens")
    return Fault("prompt_too_long", message, parameter=prompt)


def _read(body: bytes) -> _Answer:
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(str(error)) from error
    if answer.error is not None:
        raise Unreadable(_error(body)[0][:SHOWN] or "it is an error")
    return answer


def _text(text: str, choice: _Choice, usage: _Usage | None) -> GeneratedText:
    finish = _FINISHES.get(choice.finish_reason or "")
    if finish is None:
        raise Unreadable(f"it ended by {choice.finish_reason!r}")
    spent = usage or _Usage()
    return GeneratedText(text, finish, choice.stop_reason, spent.prompt_tokens, spent.completion_tokens or 0)


def _error(body: bytes) -> tuple[str, str]:
    """Return message and parameter of OpenAI's error object, or of vLLM's older one without a wrapping."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "", ""
    if isinstance(found, dict) and isinstance(found.get("error"), dict):
        found = found["error"]
    if not isinstance(found, dict):
        return "", ""
    message, param = found.get("message"), found.get("param")
    return message if isinstance(message, str) else "", param if isinstance(param, str) else ""


def _retry_after_ms(headers: Mapping[bytes, bytes]) -> int:
    said = headers.get(b"retry-after", b"")
    return int(said) * 1000 if _DIGITS.fullmatch(said) else RETRY_AFTER_MS
