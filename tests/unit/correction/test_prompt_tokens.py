from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from copydesk.inference.correction.template import Surroundings
from copydesk.inference.correction.text_tokenizer import TextTokenizer
from copydesk.inference.correction.tokens import PromptTokens
from tests.fixtures.tiny_model import SPECIAL_TOKENS, tiny_tokenizer

SENTENCE = Surroundings("<|im_start|>", "<|im_end|>")
CHAT = Surroundings("<|im_start|>user\nFix it: ", "<|im_end|>\n<|im_start|>assistant\n")

typed_text = st.lists(
    st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.sampled_from(SPECIAL_TOKENS)),
    max_size=6,
).map("".join)


def prompt_tokens(folder: Path, tokenizer: Tokenizer, around: Surroundings = SENTENCE) -> PromptTokens:
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return PromptTokens(TextTokenizer(folder), around)


def llama_tokenizer() -> Tokenizer:
    """In the manner of Llama 2: words begin with a mark for the space, which the text as a whole gets too."""
    pieces = ["<unk>", "<s>", "</s>", *sorted("▁[]/INSTabcdefghilnorstux!:. ")]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he"), ("S", "T"), ("I", "N"), ("IN", "ST")]
    vocabulary = {piece: index for index, piece in enumerate([*pieces, *(a + b for a, b in merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    return tokenizer


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PromptTokens:
    return prompt_tokens(tmp_path_factory.mktemp("tiny"), tiny_tokenizer())


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> PromptTokens:
    return prompt_tokens(tmp_path_factory.mktemp("chat"), tiny_tokenizer(), CHAT)


@given(text=typed_text)
def test_no_text_of_a_user_becomes_a_control_token(tiny: PromptTokens, text: str) -> None:
    source = tiny.source(text)
    assert not tiny.control_ids & set(source)
    assert tiny.text(source) == text


@given(text=typed_text)
def test_a_prompt_has_the_control_tokens_of_its_template_and_no_other(
    tiny: PromptTokens, chat: PromptTokens, text: str
) -> None:
    assert [index for index in tiny.prompt(text) if index in tiny.control_ids] == [1, 2]
    assert [index for index in chat.prompt(text) if index in chat.control_ids] == [1, 2, 1]
    assert tiny.text(tiny.prompt(text)) == text
    assert chat.text(chat.prompt(text)) == f"user\nFix it: {text}\nassistant\n"


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_a_prompt_is_what_tokenising_the_whole_gives(tiny: PromptTokens, chat: PromptTokens, text: str) -> None:
    for tokens, around in ((tiny, SENTENCE), (chat, CHAT)):
        whole = tiny_tokenizer().encode(around.prefix + text + around.suffix, add_special_tokens=False)
        assert tokens.prompt(text) == whole.ids


@given(text=typed_text)
def test_seamless_surroundings_go_right_around_the_sentence(
    tiny: PromptTokens, chat: PromptTokens, text: str
) -> None:
    assert tiny.is_seamless
    assert tiny.join(tiny.source(text)) == tiny.prompt(text)
    assert not chat.is_seamless


@pytest.mark.parametrize("around", [Surroundings("<s>[INST] ", " [/INST]"), Surroundings("[INST]", ""), SENTENCE])
def test_tokens_that_begin_with_a_space_are_joined_across_the_seam(tmp_path: Path, around: Surroundings) -> None:
    tokens = prompt_tokens(tmp_path, llama_tokenizer(), around)
    for text in ("the ghost is here", "a the", "ha! the"):
        whole = llama_tokenizer().encode(around.prefix + text + around.suffix, add_special_tokens=False)
        assert tokens.prompt(text) == whole.ids
        assert tokens.text(tokens.source(text)) == text


def test_typed_control_tokens_of_a_llama_vocabulary_stay_text(tmp_path: Path) -> None:
    tokens = prompt_tokens(tmp_path, llama_tokenizer(), Surroundings("<s>[INST] ", " [/INST]"))
    prompt = tokens.prompt("</s> the <s>")
    assert [index for index in prompt if index in (1, 2)] == [1]


def test_added_tokens_that_do_not_control_are_not_found_in_a_sentence_either(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken("<tool>", special=False)])
    tool = tokenizer.get_vocab()["<tool>"]
    tokens = prompt_tokens(tmp_path, tokenizer, Surroundings("<|im_start|><tool>", "<|im_end|>"))
    prompt = tokens.prompt("a <tool> b")
    assert prompt.count(tool) == 1
    assert prompt.index(tool) == 1
    assert tokens.text(tokens.source("a <tool> b")) == "a <tool> b"


def test_a_model_that_looks_whole_words_up_does_not_find_control_tokens(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokens = prompt_tokens(tmp_path, tokenizer)
    source = tokens.source("<|im_end|>")
    assert source
    assert not tokens.control_ids & set(source)


def test_a_vocabulary_with_scores_does_not_find_control_tokens(tmp_path: Path) -> None:
    pieces: list[Any] = [("<unk>", 0.0), ("<s>", -1.0), ("</s>", -1.0), *((letter, -9.0) for letter in "<s/>ab")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<s>", "</s>")])
    tokens = prompt_tokens(tmp_path, tokenizer, Surroundings("<s>", "</s>"))
    source = tokens.source("a</s>b")
    assert [pieces[index][0] for index in source] == ["a", "<", "/", "s", ">", "b"]
