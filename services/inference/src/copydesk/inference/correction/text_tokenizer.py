"""Tokenising a template's text with its control tokens, and a user's text without any.

A user may type `<|im_end|>`; to the model it must stay the ten characters that it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import AddedToken, Encoding, Tokenizer, pre_tokenizers

from copydesk.inference.correction.errors import ModelFileError
from copydesk.inference.correction.files import MOST_TOKENIZER_BYTES, read_content

_FILE = "tokenizer.json"

CHARACTERS_A_TOKEN = 16
MOST_CHARACTERS = 65_536
"""Text beyond either fits no model, and is not tokenised to find out: four megabytes of it would take seconds, for
which everybody else would have to wait."""


def most_characters(context: int) -> int:
    """How long a text for so many tokens may be at the most."""
    return min(CHARACTERS_A_TOKEN * context, MOST_CHARACTERS)


class _Added(msgspec.Struct):
    """A token beside the model's own vocabulary, found in texts before anything else is."""

    id: int
    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False

    def pattern(self) -> str:
        text = re.escape(self.content)
        return rf"(?<!\w){text}(?!\w)" if self.single_word else text


class _Model(msgspec.Struct):
    unk_token: str | None = None
    unk_id: int | None = None


class _Outline(msgspec.Struct):
    """What needs to be known of a tokenizer.json; its vocabulary is not among it."""

    model: _Model
    added_tokens: list[_Added] = []


class TextTokenizer:
    """The tokenizer of a model directory, in which control tokens come from templates alone.

    The library is told to look for no added token, so that one tokenizer serves both: those of a template are
    found here. Where a vocabulary lets plain text become a control token all the same (models that look whole
    words up), such a text goes through a second tokenizer that has none. For one thread at a time.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _FILE
        content = _read(directory)
        outline = _outline(directory, content)
        self._tokenizer = _load(directory, content)
        added = [token for token in outline.added_tokens if not _is_unknown(token, outline.model)]
        self.control_ids = frozenset(token.id for token in added if token.special)
        self.silent_ids = frozenset(token.id for token in outline.added_tokens if token.special)
        self._added = {token.content: token for token in added}
        self._find_added = _pattern(added)
        self._edges = _edges(added)
        # To the library a token is ignored in a text only if it is special, and all of them are to be.
        self._tokenizer.add_special_tokens([AddedToken(token.content, special=True) for token in added])
        self._tokenizer.encode_special_tokens = True
        self._at_start = _space_at_start(self._tokenizer)
        for token in added:  # makes the second tokenizer now, if it takes one, and not in the midst of requests
            self.encode(token.content)

    def encode(self, text: str, *, continues: bool = False) -> list[int]:
        """The tokens of a user's text; no control token is ever among them.

        Some tokenizers put a space before a text, unless it `continues` after other tokens.
        """
        return list(self._encoding(text, continues).ids)

    def encode_document(self, text: str) -> list[int]:
        """The tokens of a user's text by itself, with those that the model wants around every text."""
        return list(self._tokenizer.post_process(self._encoding(text, continues=False)).ids)

    def encode_template(self, text: str, *, mark: str = "") -> list[int]:
        """The tokens of a template's text, its control tokens included; `mark` is left out of it."""
        ids: list[int] = []
        for part in self.split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self.encode(part.replace(mark, "") if mark else part, continues=bool(ids))
        return ids

    def split(self, text: str) -> Iterator[int | str]:
        """Cut a template's text into added tokens and what is between them."""
        place, right_strips = 0, False
        for match in self._find_added.finditer(text):
            token = self._added[match.group()]
            between = text[place : match.start()]
            between = between.lstrip() if right_strips else between
            between = between.rstrip() if token.lstrip else between
            if between:
                yield between
            yield token.id
            place, right_strips = match.end(), token.rstrip
        rest = text[place:].lstrip() if right_strips else text[place:]
        if rest:
            yield rest

    def disarm(self, text: str, mark: str) -> str:
        """Put `mark`, which is no part of any text, where `split` could find a token that a user typed.

        Neither alone nor together with a template's text around it can then be one.
        """
        return self._edges.sub(lambda match: f"{mark}{match.group()}{mark}", text)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, without control tokens."""
        shown = [token for token in tokens if token not in self.silent_ids]
        return str(self._tokenizer.decode(shown, skip_special_tokens=False))

    def token_id(self, token: str) -> int | None:
        """The id of a token given by its text."""
        index: int | None = self._tokenizer.token_to_id(token)
        return index

    def token_text(self, token: int) -> str | None:
        """The text of a token given by its id, as the vocabulary has it."""
        text: str | None = self._tokenizer.id_to_token(token)
        return text

    def unknown(self, tokens: Iterable[int]) -> int | None:
        """Return one of `tokens` that is no token's id, if there is one."""
        for token in set(tokens):
            if not 0 <= token < 1 << 31 or self._tokenizer.id_to_token(token) is None:
                return token
        return None

    def _encoding(self, text: str, continues: bool) -> Encoding:
        encoding = self._encode(self._tokenizer, self._at_start, text, continues)
        if self.control_ids.isdisjoint(encoding.ids):
            return encoding
        return self._encode(self._harmless, _space_at_start(self._harmless), text, continues)

    @staticmethod
    def _encode(
        tokenizer: Tokenizer, at_start: pre_tokenizers.Metaspace | None, text: str, continues: bool
    ) -> Encoding:
        if at_start is None or not continues:
            return tokenizer.encode(text, add_special_tokens=False)
        at_start.prepend_scheme = "never"
        try:
            return tokenizer.encode(text, add_special_tokens=False)
        finally:
            at_start.prepend_scheme = "first"

    @cached_property
    def _harmless(self) -> Tokenizer:
        content = json.loads(_read(self._path.parent))
        return _load(self._path.parent, json.dumps(_without_added_tokens(content)).encode())


def _read(directory: Path) -> bytes:
    try:
        return read_content(directory, _FILE, MOST_TOKENIZER_BYTES)
    except FileNotFoundError:
        raise ModelFileError(directory, _FILE, "there is no such file") from None


def _outline(directory: Path, content: bytes) -> _Outline:
    try:
        return msgspec.json.decode(content, type=_Outline)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelFileError(directory, _FILE, str(error)) from error


def _load(directory: Path, content: bytes) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise ModelFileError(directory, _FILE, str(error)) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _is_unknown(token: _Added, model: _Model) -> bool:
    return token.content == model.unk_token or token.id == model.unk_id


def _pattern(added: Sequence[_Added]) -> re.Pattern[str]:
    """Finds the leftmost added token, and of those that begin there the longest."""
    longest_first = sorted(added, key=lambda token: len(token.content), reverse=True)
    return re.compile("|".join(token.pattern() for token in longest_first) or r"(?!)")


def _edges(added: Sequence[_Added]) -> re.Pattern[str]:
    """The characters that added tokens begin and end with; white space aside, which templates trim."""
    characters = {character for token in added for character in (token.content[0], token.content[-1])}
    visible = sorted(character for character in characters if not character.isspace())
    return re.compile("|".join(map(re.escape, visible)) or r"(?!)")


def _space_at_start(tokenizer: Tokenizer) -> pre_tokenizers.Metaspace | None:
    """What puts a space before a text, but not before the parts of it that follow a control token."""
    splitter = tokenizer.pre_tokenizer
    is_one = isinstance(splitter, pre_tokenizers.Metaspace) and splitter.prepend_scheme == "first"
    return splitter if is_one else None


def _without_added_tokens(content: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer without its added tokens, and with no way to reach those that control the model.

    In its vocabulary they get a text that no input can have, at their place, so that every other id stays.
    """
    model = content["model"]
    unknown = model.get("unk_token")
    controls = {entry["content"] for entry in content["added_tokens"] if entry["special"]} - {unknown}
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        hidden: Any = {_hide(token, controls): index for token, index in vocabulary.items()}
    else:
        hidden = [[_hide(token, controls), score] for token, score in vocabulary]
    return content | {"added_tokens": [], "post_processor": None, "model": model | {"vocab": hidden}}


def _hide(token: str, controls: set[str]) -> str:
    return f"\x00{token}\x00" if token in controls else token
