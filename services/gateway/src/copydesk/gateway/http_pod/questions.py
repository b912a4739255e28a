"""Tasks, as OpenAI's API puts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from copydesk.common.tasks import (
    ChatPrompt,
    CorrectedSentence,
    CorrectSentence,
    GeneratedText,
    GenerateText,
    Outcome,
    Stopped,
    Task,
    TextPrompt,
)
from copydesk.text import keep_emoji, similarity

COMPLETIONS = "/v1/completions"
CHAT_COMPLETIONS = "/v1/chat/completions"

MIN_SIMILARITY = 0.5
"""The least share of words that a correction has in common with its source; what pods have by default."""

BYTES_A_TOKEN = 2
SPARE_TOKENS = 16
"""What bounds a correction: English has about four bytes a token, so that this is twice the source and some more.
A model that runs on is cut."""

_REPLACEMENT = "\ufffd"

_encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Question:
    """A request to a server: `body` for `path`.

    `conclude` makes the answer to the task, encoded, of the text that the server writes. `too_long` is the answer
    where prompt and answer do not fit; without it that is an error.
    """

    path: str
    body: bytes
    streamed: bool
    conclude: Callable[[GeneratedText], bytes]
    too_long: bytes | None = None


def question(task: Task, model: str) -> Question:
    """Put a task to a server that calls its model `model`."""
    if isinstance(task, CorrectSentence):
        return _correction(task, model)
    prompt = task.prompt
    body: dict[str, Any] = {"model": model, "max_tokens": task.max_tokens, **_parameters(task)}
    if isinstance(prompt, ChatPrompt):
        body["messages"] = [{"role": turn.role, "content": turn.content} for turn in prompt.messages]
        if task.max_tokens is None:
            del body["max_tokens"]
        return Question(CHAT_COMPLETIONS, _encode_json(body), task.stream, _encode)
    # Null is what the context leaves; nothing at all would be 16.
    body["prompt"] = prompt.text if isinstance(prompt, TextPrompt) else prompt.ids
    return Question(COMPLETIONS, _encode_json(body), task.stream, _encode)


def _correction(task: CorrectSentence, model: str) -> Question:
    """Ask for a correction by the model's own chat template, with the sentence as what the user says."""
    source = task.text
    body = {
        "model": model,
        "messages": [{"role": "user", "content": source}],
        "temperature": 0,
        "max_tokens": SPARE_TOKENS + len(source.encode()) // BYTES_A_TOKEN,
    }

    def conclude(answer: GeneratedText) -> bytes:
        return _encode(corrected(source, answer))

    too_long = _encode(CorrectedSentence(source, Outcome.TOO_LONG, 0, 0))
    return Question(CHAT_COMPLETIONS, _encode_json(body), False, conclude, too_long)


def corrected(source: str, answer: GeneratedText) -> CorrectedSentence:
    """The correction, or the sentence as it was when the answer is not to be believed; as RPC pods judge it."""
    outcome = Outcome.CORRECTED
    text = " ".join(line.strip() for line in answer.text.splitlines() if line.strip()) or source
    if answer.finish is not Stopped.STOP:
        outcome = Outcome.TRUNCATED
    elif text != source and not _believable(source, text):
        outcome = Outcome.DISSIMILAR
    kept = keep_emoji(source, text) if outcome is Outcome.CORRECTED else source
    return CorrectedSentence(kept, outcome, answer.prompt_tokens, answer.completion_tokens)


def _believable(source: str, target: str) -> bool:
    if _REPLACEMENT in target and _REPLACEMENT not in source:
        return False
    return similarity(source, target) >= MIN_SIMILARITY


def _parameters(task: GenerateText) -> dict[str, Any]:
    """What differs from the defaults: a server need not know vLLM's parameters unless they are used."""
    always = {"temperature": task.temperature}
    streaming = {"stream": True, "stream_options": {"include_usage": True}} if task.stream else {}
    optional = {
        "top_p": task.top_p if task.top_p != 1 else None,
        "top_k": task.top_k if task.top_k > 0 else None,
        "min_p": task.min_p or None,
        "seed": task.seed,
        "presence_penalty": task.presence_penalty or None,
        "frequency_penalty": task.frequency_penalty or None,
        "repetition_penalty": task.repetition_penalty if task.repetition_penalty != 1 else None,
        "stop": task.stop or None,
        "stop_token_ids": task.stop_ids or None,
        "ignore_eos": task.ignore_eos or None,
    }
    return always | streaming | {name: value for name, value in optional.items() if value is not None}
