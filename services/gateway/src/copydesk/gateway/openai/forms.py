"""The bodies of answers, in the forms of the two APIs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, UnsetType

from copydesk.common.tasks import GeneratedText
from copydesk.gateway.openai.schemas import (
    ChatAnswer,
    ChatChoice,
    ChatChunkChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatDelta,
    Completion,
    CompletionChoice,
    TokenUsage,
)

UsageField = TokenUsage | None | UnsetType


class Heading(msgspec.Struct, frozen=True):
    """What every part of an answer repeats; `created` is in Unix seconds."""

    id: str
    created: int
    model: str


class Ended(msgspec.Struct, frozen=True):
    """A text to its end, and the digest of the weights that wrote it."""

    answer: GeneratedText
    digest: str


class Form(Protocol):
    """One of the two APIs' ways to put an answer."""

    id_prefix: str

    def whole(self, heading: Heading, texts: Sequence[Ended]) -> msgspec.Struct:
        """Every choice at once."""
        ...

    def part(
        self, heading: Heading, index: int, text: str, usage: UsageField, *, first: bool, ended: Ended | None
    ) -> msgspec.Struct:
        """More of one choice; with `ended` the last of it."""
        ...

    def last(self, heading: Heading, usage: TokenUsage) -> msgspec.Struct:
        """What the whole has cost, without a choice."""
        ...


class CompletionForm:
    """`/v1/completions`: a part of an answer has the shape of a whole one."""

    id_prefix = "cmpl-"

    def whole(self, heading: Heading, texts: Sequence[Ended]) -> Completion:
        """Every choice at once."""
        choices = [_completion_choice(index, ended.answer.text, ended) for index, ended in enumerate(texts)]
        return _completion(heading, choices, usage_of(texts), _digest(texts[0]))

    def part(
        self, heading: Heading, index: int, text: str, usage: UsageField, *, first: bool, ended: Ended | None
    ) -> Completion:
        """More of one choice."""
        del first
        return _completion(heading, [_completion_choice(index, text, ended)], usage, _digest(ended))

    def last(self, heading: Heading, usage: TokenUsage) -> Completion:
        """What the whole has cost."""
        return _completion(heading, [], usage, UNSET)


class ChatForm:
    """`/v1/chat/completions`: a part has a `delta` where the whole has a `message`."""

    id_prefix = "chatcmpl-"

    def whole(self, heading: Heading, texts: Sequence[Ended]) -> ChatCompletion:
        """Every choice at once."""
        answers = [ended.answer for ended in texts]
        return ChatCompletion(
            id=heading.id,
            created=heading.created,
            model=heading.model,
            choices=[
                ChatChoice(index, ChatAnswer(answer.text), answer.finish, answer.stop_reason)
                for index, answer in enumerate(answers)
            ],
            usage=usage_of(texts),
            system_fingerprint=_digest(texts[0]),
        )

    def part(
        self, heading: Heading, index: int, text: str, usage: UsageField, *, first: bool, ended: Ended | None
    ) -> ChatCompletionChunk:
        """More of one choice."""
        delta = ChatDelta(text if text or first else UNSET, "assistant" if first else UNSET)
        if ended is None:
            choice = ChatChunkChoice(index, delta)
        else:
            choice = ChatChunkChoice(index, delta, None, ended.answer.finish, ended.answer.stop_reason)
        return _chunk(heading, [choice], usage, _digest(ended))

    def last(self, heading: Heading, usage: TokenUsage) -> ChatCompletionChunk:
        """What the whole has cost."""
        return _chunk(heading, [], usage, UNSET)


def usage_of(texts: Sequence[Ended]) -> TokenUsage:
    """What the texts cost together."""
    prompts = sum(ended.answer.prompt_tokens for ended in texts)
    answers = sum(ended.answer.completion_tokens for ended in texts)
    return TokenUsage(prompts, answers, prompts + answers)


def _digest(ended: Ended | None) -> str | UnsetType:
    """A server that speaks only HTTP does not tell its weights."""
    return UNSET if ended is None or not ended.digest else ended.digest


def _completion_choice(index: int, text: str, ended: Ended | None) -> CompletionChoice:
    if ended is None:
        return CompletionChoice(index, text)
    return CompletionChoice(index, text, None, ended.answer.finish, ended.answer.stop_reason)


def _completion(
    heading: Heading, choices: list[CompletionChoice], usage: UsageField, digest: str | UnsetType
) -> Completion:
    return Completion(
        id=heading.id,
        created=heading.created,
        model=heading.model,
        choices=choices,
        usage=usage,
        system_fingerprint=digest,
    )


def _chunk(
    heading: Heading, choices: list[ChatChunkChoice], usage: UsageField, digest: str | UnsetType
) -> ChatCompletionChunk:
    return ChatCompletionChunk(
        id=heading.id,
        created=heading.created,
        model=heading.model,
        choices=choices,
        usage=usage,
        system_fingerprint=digest,
    )
