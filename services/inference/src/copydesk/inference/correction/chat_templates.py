"""Chat templates in a sandbox: compiling and rendering, and a program that does both within bounds.

A sandbox keeps a template away from everything else, but lets it loop for years and make strings of terabytes. So
templates that nobody has looked at yet are tried in a process of their own, which may compute for some seconds and
take some memory: `python -I chat_templates.py` reads a `Job` as JSON and writes `{"texts": [...]}` or
`{"error": "..."}`. It starts quickly since nothing of Copydesk is imported here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypedDict

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST_TEXT = 1 << 20
"""Characters that a template may put around a sentence: no model takes a part of that."""

Messages = Sequence[Mapping[str, str]]


class Job(TypedDict):
    """What is to be rendered, and the bounds: a template, the tokens that it may name, conversations."""

    template: str
    named_tokens: dict[str, str]
    conversations: list[list[dict[str, str]]]
    cpu_seconds: int
    memory_bytes: int


class TemplateError(Exception):
    """A template that does not compile, or not render; the text says why."""


def compile_text(template: str) -> jinja2.Template:
    """Compile a template, in a sandbox, with what Hugging Face's templates use; raises `TemplateError`."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        extensions=[loopcontrols],
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(template)
    except _FAILURES as error:
        raise TemplateError(_said(error)) from error


def render_text(template: jinja2.Template, named_tokens: Mapping[str, str], messages: Messages) -> str:
    """Render a conversation and the beginning of its answer; raises `TemplateError`."""
    try:
        return template.render(
            messages=messages, tools=None, documents=None, add_generation_prompt=True, **named_tokens
        )
    except _FAILURES as error:
        raise TemplateError(_said(error)) from error


_FAILURES = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    LookupError,
    RecursionError,
    MemoryError,
)


def _said(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "it takes too much memory"
    return str(error) or type(error).__name__


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _bound(job: Job) -> None:
    import resource

    for what, most in (
        (resource.RLIMIT_CPU, job["cpu_seconds"]),
        (resource.RLIMIT_AS, job["memory_bytes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _rendered(job: Job) -> dict[str, object]:
    try:
        template = compile_text(job["template"])
        texts = [render_text(template, job["named_tokens"], messages) for messages in job["conversations"]]
    except TemplateError as error:
        return {"error": str(error)[:1000]}
    longest = max(map(len, texts), default=0)
    if longest > LONGEST_TEXT:
        return {"error": f"it makes {longest:,} characters of a sentence; expected {LONGEST_TEXT:,} at the most"}
    return {"texts": texts}


def main() -> None:
    """Render what standard input says, within bounds."""
    job: Job = json.load(sys.stdin)
    _bound(job)
    json.dump(_rendered(job), sys.stdout)


if __name__ == "__main__":
    main()
