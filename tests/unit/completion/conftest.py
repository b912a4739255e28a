from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, processors

from copydesk.inference.completion import Completer
from copydesk.inference.correction import TextTokenizer, read_model_files
from tests.fixtures.tiny_model import write_tiny_model
from tests.unit.completion.chat_model import CHAT, completer_for


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = write_tiny_model(tmp_path_factory.mktemp("chat"), layers=1, context=200, chat_template=CHAT)
    path = str(directory / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    tokenizer.save(path)
    return directory


@pytest.fixture(scope="session")
def tokenizer(chat_model: Path) -> TextTokenizer:
    return TextTokenizer(chat_model)


@pytest.fixture(scope="session")
def completer(chat_model: Path, tokenizer: TextTokenizer) -> Completer:
    return completer_for(chat_model, tokenizer)


@pytest.fixture(scope="session")
def roomy(chat_model: Path, tokenizer: TextTokenizer) -> Completer:
    """The same with room for any text that a test comes up with."""
    return Completer(replace(read_model_files(chat_model), context=10_000), tokenizer)
