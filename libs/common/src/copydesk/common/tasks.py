"""What a gateway asks of a pod: the payloads of RPC requests, of responses, and of what is streamed before them.

A request is one of `Task`, told apart by its tag. New fields go at the end and have defaults, so that gateways and
pods of neighbouring versions understand each other.
"""

from __future__ import annotations

import enum

import msgspec


class Outcome(enum.StrEnum):
    """What became of a sentence; in every case but `CORRECTED` the source comes back as it was.

    `TOO_LONG`: more tokens than the model takes. `TRUNCATED`: the answer ran into its token limit, so its end
    is missing. `DISSIMILAR`: the answer shares too few words with the source to be a correction of it.
    """

    CORRECTED = "corrected"
    TOO_LONG = "too_long"
    TRUNCATED = "truncated"
    DISSIMILAR = "dissimilar"


class CorrectSentence(msgspec.Struct, frozen=True, array_like=True, tag="correct"):
    """Correct one sentence: plain text on one line, stripped, not empty."""

    text: str


class CorrectedSentence(msgspec.Struct, frozen=True, array_like=True, tag="corrected"):
    """The corrected sentence, with the tokens that went in and came out of the model."""

    text: str
    outcome: Outcome
    prompt_tokens: int
    completion_tokens: int


class Stopped(enum.StrEnum):
    """Why a text ended: the model or something that it was told to stop at, or its limit of tokens."""

    STOP = "stop"
    LENGTH = "length"


class TextPrompt(msgspec.Struct, frozen=True, array_like=True, tag="text"):
    """A text to continue."""

    text: str


class TokenPrompt(msgspec.Struct, frozen=True, array_like=True, tag="tokens"):
    """Token ids to continue."""

    ids: list[int]


class ChatMessage(msgspec.Struct, frozen=True, array_like=True):
    """What `role` said: system, developer (to models the same), user or assistant."""

    role: str
    content: str


class ChatPrompt(msgspec.Struct, frozen=True, array_like=True, tag="chat"):
    """A conversation to answer."""

    messages: list[ChatMessage]


class GenerateText(msgspec.Struct, frozen=True, array_like=True, tag="generate_text"):
    """Write a text, with the parameters of OpenAI's APIs for completions and chats, and of vLLM's beyond them.

    `max_tokens` None means as many as the model's context leaves. `top_k` 0 or -1, `top_p` 1 and `min_p` 0 rule
    nothing out. Without a `seed`, each answer has one of its own. The text ends before the first of the strings
    `stop` and at any of `stop_ids`, neither of which it contains, and where the model ends it unless `ignore_eos`.
    With `stream`, `TextChunk`s come before the answer.
    """

    prompt: TextPrompt | TokenPrompt | ChatPrompt
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: list[str] = []
    stop_ids: list[int] = []
    n: int = 1
    stream: bool = False
    ignore_eos: bool = False


class TextChunk(msgspec.Struct, frozen=True, array_like=True, tag="text_chunk"):
    """More of the text; all chunks together are the text of the answer."""

    text: str


class GeneratedText(msgspec.Struct, frozen=True, array_like=True, tag="generated_text"):
    """The whole text. `stop_reason` is which of the request's own stop strings or ids ended it, if one did.

    `completion_tokens` counts the token that ended it. It took `passes` of the model, which verified `drafted`
    guessed tokens and found `accepted` of them right; not known where a stop string ended the text midway.
    """

    text: str
    finish: Stopped
    stop_reason: str | int | None
    prompt_tokens: int
    completion_tokens: int
    passes: int | None = None
    drafted: int | None = None
    accepted: int | None = None


Task = CorrectSentence | GenerateText
