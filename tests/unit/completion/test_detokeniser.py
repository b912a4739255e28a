from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from copydesk.inference.completion.detokeniser import REPLACEMENT, Detokeniser, last_character
from tests.fixtures.tiny_model import SPECIAL_TOKENS, tiny_tokenizer

TINY = tiny_tokenizer()
BYTES = {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
WORDS = ["▁the", "▁", "he", "▁a", "n", "▁été", "!", "日"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def byte_fallback_tokenizer() -> Tokenizer:
    """In the manner of sentencepiece: a mark for the space, and bytes for what has no token."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, **BYTES}
    vocabulary |= {word: len(vocabulary) + index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    return tokenizer


LLAMA = byte_fallback_tokenizer()


def tiny_decode(tokens: Sequence[int]) -> str:
    return str(TINY.decode(tokens, skip_special_tokens=True))


def llama_decode(tokens: Sequence[int]) -> str:
    return str(LLAMA.decode(tokens, skip_special_tokens=False))


def spelled(text: str) -> list[int]:
    """A text of which every byte is a token."""
    return [BYTES[f"<0x{byte:02X}>"] for byte in text.encode()]


llama_tokens = st.lists(
    st.one_of(st.sampled_from(range(259, 259 + len(WORDS))).map(lambda token: [token]), texts.map(spelled)),
    max_size=8,
).map(lambda parts: [token for part in parts for token in part])


def run(detokeniser: Detokeniser, tokens: list[int]) -> list[str]:
    return [*(detokeniser.push(token) for token in tokens), detokeniser.finish()]


@given(texts)
def test_bytes_of_a_character_are_given_out_together(text: str) -> None:
    given_out = run(Detokeniser(tiny_decode), [3 + index for index in _byte_tokens(text)])
    assert "".join(given_out) == text
    if REPLACEMENT not in text:
        assert not any(REPLACEMENT in part for part in given_out)
        assert given_out[-1] == ""


@given(st.lists(st.integers(0, TINY.get_vocab_size() - 1), max_size=120))
def test_any_tokens_of_a_byte_level_vocabulary_become_what_they_decode_to(tokens: list[int]) -> None:
    detokeniser = Detokeniser(tiny_decode, silent={0, 1, 2})
    assert "".join(run(detokeniser, tokens)) == tiny_decode(tokens)


@given(llama_tokens)
def test_tokens_of_a_sentencepiece_vocabulary_become_what_they_decode_to(tokens: list[int]) -> None:
    given_out = run(Detokeniser(llama_decode), tokens)
    assert "".join(given_out) == llama_decode(tokens)


@given(llama_tokens, llama_tokens)
def test_a_text_is_continued_with_its_space(before: list[int], tokens: list[int]) -> None:
    before = [259, *before]
    given_out = run(Detokeniser(llama_decode, last_character(llama_decode, before)), tokens)
    assert llama_decode(before) + "".join(given_out) == llama_decode([*before, *tokens])


@given(st.lists(st.integers(3, 258), max_size=200))
def test_broken_bytes_are_given_out_in_the_end(tokens: list[int]) -> None:
    for decode in (tiny_decode, llama_decode):
        run(Detokeniser(decode), tokens)


@pytest.mark.parametrize("text", [REPLACEMENT * 200, "\x80" * 200])
def test_what_stays_broken_is_not_held_back_for_ever(text: str) -> None:
    detokeniser = Detokeniser(tiny_decode)
    raw = text.encode() if text[0] == REPLACEMENT else b"\x80" * 200
    tokens = [3 + index for index in _byte_tokens_of(raw)]
    given_out = "".join(detokeniser.push(token) for token in tokens)
    assert len(given_out) > 180
    assert given_out + detokeniser.finish() == tiny_decode(tokens)


def test_control_tokens_have_no_text() -> None:
    detokeniser = Detokeniser(tiny_decode, silent={0, 1, 2})
    tokens = [1, *TINY.encode("a", add_special_tokens=False).ids, 0, 2]
    assert run(detokeniser, tokens) == ["", "a", "", "", ""]
    assert tiny_decode([1]) == "" != SPECIAL_TOKENS[1]


def _byte_tokens(text: str) -> list[int]:
    return _byte_tokens_of(text.encode())


def _byte_tokens_of(raw: bytes) -> list[int]:
    """Places of the bytes among the tiny vocabulary's, which are sorted by the characters that stand for them."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    shown = {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    places = {character: index for index, character in enumerate(sorted(shown.values()))}
    return [places[shown[byte]] for byte in raw]
