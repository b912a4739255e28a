"""What a Hugging Face directory says about talking to its model: template, named tokens, stop ids, context."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from copydesk.inference.correction.errors import MissingChatTemplateError, ModelFileError
from copydesk.inference.correction.files import read_content

TEMPLATE = "chat_template.jinja"
_DEFAULT_CONTEXT = 2048
"""What Hugging Face's LlamaConfig takes where a config names no `max_position_embeddings`."""


@dataclass(frozen=True)
class ModelFiles:
    """The parts of config.json, generation_config.json, tokenizer_config.json and the template that matter here.

    `named_tokens` maps names such as "bos_token" to their text; `context` is in tokens.
    """

    directory: Path
    chat_template: str
    named_tokens: dict[str, str]
    eos_ids: tuple[int, ...]
    context: int


def read_model_files(directory: Path) -> ModelFiles:
    """Read what `directory` says.

    Raises:
        ModelFileError: There is no config.json, or a file is not what it should be.
        MissingChatTemplateError: No file holds a chat template.
    """
    config = _read_json(directory, "config.json", required=True)
    generation = _read_json(directory, "generation_config.json")
    tokenizer = _read_json(directory, "tokenizer_config.json")
    eos_ids = [*_ids(directory, generation, "generation_config.json"), *_ids(directory, config, "config.json")]
    context = config.get("max_position_embeddings", _DEFAULT_CONTEXT)
    if not isinstance(context, int) or context < 1:
        raise ModelFileError(
            directory, "config.json", f"max_position_embeddings is {context!r}, expected 1 or more"
        )
    return ModelFiles(
        directory=directory,
        chat_template=_chat_template(directory, tokenizer),
        named_tokens=dict(_named_tokens(tokenizer)),
        eos_ids=tuple(dict.fromkeys(eos_ids)),
        context=context,
    )


def _chat_template(directory: Path, tokenizer_config: dict[str, Any]) -> str:
    try:
        return read_content(directory, TEMPLATE).decode()
    except FileNotFoundError:
        template = tokenizer_config.get("chat_template")
    except UnicodeDecodeError as error:
        raise ModelFileError(directory, TEMPLATE, f"it is no UTF-8: {error.reason}") from error
    if isinstance(template, list):  # several, by name; the one for plain chats is called "default"
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[-1].get("template") if named else None
    if not isinstance(template, str):
        raise MissingChatTemplateError(directory)
    return template


def _named_tokens(tokenizer_config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in tokenizer_config.items():
        if not name.endswith("_token"):
            continue
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            yield name, text


def _ids(directory: Path, content: dict[str, Any], name: str) -> list[int]:
    value = content.get("eos_token_id")
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(entry, int) and entry >= 0 for entry in ids):
        raise ModelFileError(directory, name, f"eos_token_id is {value!r}, expected a token id or a list of them")
    return ids


def _read_json(directory: Path, name: str, *, required: bool = False) -> dict[str, Any]:
    try:
        content = json.loads(read_content(directory, name).decode())
    except FileNotFoundError:
        if required:
            raise ModelFileError(directory, name, "there is no such file") from None
        return {}
    except (ValueError, RecursionError) as error:
        raise ModelFileError(directory, name, str(error)) from error
    if not isinstance(content, dict):
        raise ModelFileError(directory, name, "expected a JSON object")
    return content
