"""Tokenising a template's text with its control tokens, and a user's text without any.

A user may type `<|im_end|>`; to the model it must stay the ten characters that it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from copydesk.inference.correction.errors import ModelFileError
from copydesk.inference.correction.template import Surroundings

_FILE = "tokenizer.json"


class PromptTokens:
    """Puts the tokens of a sentence between those of its surroundings.

    The surroundings are tokenised once, up to the added tokens that stand next to the sentence. What is between
    those and the sentence goes through the tokenizer together with it, since tokens may span the seam.
    """

    def __init__(self, directory: Path, surroundings: Surroundings) -> None:
        content = _read(directory)
        self._full = _load(directory, content)
        self._plain = _load(directory, _without_added_tokens(content))
        added = [
            entry for entry in content["added_tokens"] if entry["content"] != content["model"].get("unk_token")
        ]
        self.control_ids = frozenset(entry["id"] for entry in added if entry["special"])
        self._added_ids = frozenset(entry["id"] for entry in added)
        self._head, self._before = self._cut_prefix(surroundings.prefix)
        self._after, self._foot = self._cut_suffix(surroundings.suffix)

    def source(self, sentence: str) -> list[int]:
        """The tokens of the sentence by itself; no control token is ever among them."""
        return list(self._plain.encode(sentence, add_special_tokens=False).ids)

    def prompt(self, sentence: str) -> list[int]:
        """The tokens of the whole prompt."""
        return [*self._head, *self.source(self._before + sentence + self._after), *self._foot]

    @property
    def is_seamless(self) -> bool:
        """Whether control tokens stand right at the sentence, so that its own tokens are part of the prompt."""
        return not self._before and not self._after

    def join(self, source: Sequence[int]) -> list[int]:
        """The whole prompt around the tokens of a sentence; for seamless surroundings only."""
        return [*self._head, *source, *self._foot]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of generated tokens, without control tokens."""
        return str(self._full.decode(list(tokens), skip_special_tokens=True))

    def token_id(self, token: str) -> int | None:
        """The id of a token given by its text."""
        index: int | None = self._full.token_to_id(token)
        return index

    def _cut_prefix(self, prefix: str) -> tuple[list[int], str]:
        encoding = self._full.encode(prefix, add_special_tokens=False)
        for position in reversed(range(len(encoding.ids))):
            if encoding.ids[position] in self._added_ids:
                return encoding.ids[: position + 1], prefix[encoding.offsets[position][1] :]
        return [], prefix

    def _cut_suffix(self, suffix: str) -> tuple[str, list[int]]:
        encoding = self._full.encode(suffix, add_special_tokens=False)
        for position, index in enumerate(encoding.ids):
            if index in self._added_ids:
                return suffix[: encoding.offsets[position][0]], encoding.ids[position:]
        return suffix, []


def _read(directory: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads((directory / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFileError(directory, _FILE, "there is no such file") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(directory, _FILE, str(error)) from error
    return content


def _load(directory: Path, content: dict[str, Any]) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the library raises nothing narrower
        raise ModelFileError(directory, _FILE, str(error)) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _without_added_tokens(content: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer without its added tokens, and with no way to reach those that control the model.

    Control tokens often stand in the vocabulary too, where a model that looks whole words up could find them.
    There they get a text that no input can have, at their place, so that every other id stays as it is.
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
