"""What a chat template puts around a sentence.

The template is rendered when the model is loaded, not for every sentence: around a stand-in, at which the
result is cut in two. So the template's own text can be tokenised as such, and the user's text as nothing but text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from copydesk.inference.correction.errors import ChatTemplateError

_STAND_IN = "CopydeskSentenceStandIn"
_PROBE = 'A <b> & "c" it\'s  1/2 é {{ x }}\u2019'
"""Has what templates might escape, collapse or fold, and no white space at its ends, as no sentence has."""


@dataclass(frozen=True)
class Surroundings:
    """The text before the sentence and the text after it."""

    prefix: str
    suffix: str


def surroundings(
    template: str, named_tokens: Mapping[str, str], instruction: str, directory: Path
) -> Surroundings:
    """Render `template` for one message of the user's, `instruction` and sentence, and cut the sentence out.

    The template must take the sentence in exactly once and unchanged; trimming is fine. The time of day is not
    offered (`strftime_now`), so that a prompt does not depend on when a pod started.

    Raises:
        ChatTemplateError: It does not render, or uses the sentence not once, or changes it.
    """
    compiled = compile_template(template, directory)

    def rendered_around(text: str) -> str:
        return render(compiled, named_tokens, [{"role": "user", "content": instruction + text}], directory)

    rendered = rendered_around(_STAND_IN)
    uses = rendered.count(_STAND_IN)
    if uses != 1:
        raise ChatTemplateError(directory, f"it uses the message's content {uses} times unchanged, expected once")
    prefix, _, suffix = rendered.partition(_STAND_IN)
    if rendered_around(_PROBE) != prefix + _PROBE + suffix:
        raise ChatTemplateError(directory, "it changes the message's content, or depends on it")
    return Surroundings(prefix, suffix)


def compile_template(template: str, directory: Path) -> jinja2.Template:
    """Compile a template, in a sandbox, with what Hugging Face's templates use; raises `ChatTemplateError`."""
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
    except jinja2.TemplateError as error:
        raise ChatTemplateError(directory, str(error)) from error


def render(
    template: jinja2.Template,
    named_tokens: Mapping[str, str],
    messages: Sequence[Mapping[str, str]],
    directory: Path,
) -> str:
    """The prompt for an answer to `messages`; raises `ChatTemplateError` where the template fails or refuses."""
    try:
        return template.render(
            messages=messages, tools=None, documents=None, add_generation_prompt=True, **named_tokens
        )
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ChatTemplateError(directory, str(error)) from error


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
