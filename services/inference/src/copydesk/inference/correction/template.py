"""What a chat template puts around a sentence.

The template is rendered when the model is loaded, not for every sentence: around a stand-in, at which the
result is cut in two. So the template's own text can be tokenised as such, and the user's text as nothing but text.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2

from copydesk.inference.correction import chat_templates
from copydesk.inference.correction.chat_templates import Messages, TemplateError
from copydesk.inference.correction.errors import ChatTemplateError

_STAND_IN = "CopydeskSentenceStandIn"
_PROBE = 'A <b> & "c" it\'s  1/2 é {{ x }}\u2019'
"""Has what templates might escape, collapse or fold, and no white space at its ends, as no sentence has."""

CPU_SECONDS = 5
"""Of a process that tries a template; those of large models take some milliseconds."""
MEMORY_BYTES = 1 << 30
"""Address space of that process, of which the interpreter itself has a tenth."""
WALL_SECONDS = 60.0
"""How long that process may be there: much longer than it may compute, for a machine that is busy."""

Render = Callable[[str, Mapping[str, str], Sequence[Messages]], Sequence[str]]
"""Renders conversations by a template, in which there are tokens by name; raises `TemplateError`."""


@dataclass(frozen=True)
class Surroundings:
    """The text before the sentence and the text after it."""

    prefix: str
    suffix: str


def render_here(
    template: str, named_tokens: Mapping[str, str], conversations: Sequence[Messages]
) -> Sequence[str]:
    """Render in this process: for templates that are known to come to an end. Raises `TemplateError`."""
    compiled = chat_templates.compile_text(template)
    return [chat_templates.render_text(compiled, named_tokens, messages) for messages in conversations]


def render_apart(
    template: str, named_tokens: Mapping[str, str], conversations: Sequence[Messages]
) -> Sequence[str]:
    """Render in a process of its own, with little time and memory: for templates from anywhere.

    Raises:
        TemplateError: It fails or refuses, or takes too long or too much.
    """
    job = {
        "template": template,
        "named_tokens": dict(named_tokens),
        "conversations": [list(map(dict, messages)) for messages in conversations],
        "cpu_seconds": CPU_SECONDS,
        "memory_bytes": MEMORY_BYTES,
    }
    return _rendered_apart(json.dumps(job))


@lru_cache(maxsize=16)
def _rendered_apart(job: str) -> tuple[str, ...]:
    command = [sys.executable, "-I", chat_templates.__file__]
    try:
        child = subprocess.run(command, input=job.encode(), capture_output=True, timeout=WALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TemplateError(f"it has not come to an end within {WALL_SECONDS:.0f} s") from None
    try:
        answer = json.loads(child.stdout)
    except ValueError:
        raise TemplateError(_death(child)) from None
    if "error" in answer:
        raise TemplateError(answer["error"])
    return tuple(answer["texts"])


def _death(child: subprocess.CompletedProcess[bytes]) -> str:
    if child.returncode < 0:
        return f"it has not come to an end within {CPU_SECONDS} s of computing, or took too much memory"
    lines = child.stderr.decode(errors="replace").splitlines()
    return f"it cannot be tried: {lines[-1] if lines else f'exit code {child.returncode}'}"


def surroundings(
    template: str,
    named_tokens: Mapping[str, str],
    instruction: str,
    directory: Path,
    render: Render = render_here,
) -> Surroundings:
    """Render `template` for one message of the user's, `instruction` and sentence, and cut the sentence out.

    The template must take the sentence in exactly once and unchanged; trimming is fine. The time of day is not
    offered (`strftime_now`), so that a prompt does not depend on when a pod started.

    Raises:
        ChatTemplateError: It does not render, or uses the sentence not once, or changes it.
    """
    conversations = [[{"role": "user", "content": instruction + text}] for text in (_STAND_IN, _PROBE)]
    try:
        rendered, probed = render(template, named_tokens, conversations)
    except TemplateError as error:
        raise ChatTemplateError(directory, str(error)) from error
    uses = rendered.count(_STAND_IN)
    if uses != 1:
        raise ChatTemplateError(directory, f"it uses the message's content {uses} times unchanged, expected once")
    prefix, _, suffix = rendered.partition(_STAND_IN)
    if probed != prefix + _PROBE + suffix:
        raise ChatTemplateError(directory, "it changes the message's content, or depends on it")
    return Surroundings(prefix, suffix)


def compile_template(template: str, directory: Path) -> jinja2.Template:
    """Compile a template, in a sandbox, with what Hugging Face's templates use; raises `ChatTemplateError`."""
    try:
        return chat_templates.compile_text(template)
    except TemplateError as error:
        raise ChatTemplateError(directory, str(error)) from error


def render(template: jinja2.Template, named_tokens: Mapping[str, str], messages: Messages, directory: Path) -> str:
    """The prompt for an answer to `messages`; raises `ChatTemplateError` where the template fails or refuses."""
    try:
        return chat_templates.render_text(template, named_tokens, messages)
    except TemplateError as error:
        raise ChatTemplateError(directory, str(error)) from error
