from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from copydesk.inference.correction import ModelFileError, TextTokenizer
from tests.fixtures.tiny_model import SPECIAL_TOKENS, tiny_tokenizer


def saved(folder: Path, tokenizer: Tokenizer) -> TextTokenizer:
    tokenizer.save(str(folder / "tokenizer.json"))
    return TextTokenizer(folder)


def metaspace_tokenizer() -> Tokenizer:
    """In the manner of newer Llama conversions: only the very first word gets a space that nobody typed."""
    pieces = ["<unk>", "<s>", "</s>", *sorted("▁abc"), "▁a"]
    tokenizer = Tokenizer(
        models.BPE({piece: index for index, piece in enumerate(pieces)}, [("▁", "a")], unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    return tokenizer


@pytest.mark.parametrize("template", ["a<s>a b</s>", "<s>a b</s>a", " a<s> a", "abc", "", "<s></s>"])
def test_a_template_becomes_the_tokens_that_the_library_makes_of_it(tmp_path: Path, template: str) -> None:
    for tokenizer in (metaspace_tokenizer(), tiny_tokenizer()):
        expected = tokenizer.encode(template, add_special_tokens=False).ids
        assert saved(tmp_path, tokenizer).encode_template(template) == expected


def test_a_text_begins_with_a_space_only_where_it_is_the_first(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, metaspace_tokenizer())
    first, later = tokenizer.encode("a"), tokenizer.encode("a", continues=True)
    assert (tokenizer.decode([1, *first]), first == later) == ("a", False)
    assert tokenizer.encode("a") == first


@pytest.mark.parametrize(
    ("token", "template"),
    [
        (AddedToken("<sep>", lstrip=True, normalized=False), "a  <sep>  b"),
        (AddedToken("<sep>", rstrip=True, normalized=False), "a  <sep>  b"),
        (AddedToken("sep", single_word=True, normalized=False), "sep separate sep"),
    ],
)
def test_added_tokens_take_the_space_or_the_word_as_the_library_lets_them(
    tmp_path: Path, token: AddedToken, template: str
) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens([token])
    expected = tokenizer.encode(template, add_special_tokens=False).ids
    assert saved(tmp_path, tokenizer).encode_template(template) == expected


def test_the_longest_added_token_is_found_first(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens([AddedToken("<x", normalized=False), AddedToken("<x>", normalized=False)])
    expected = tokenizer.encode("<x> <x", add_special_tokens=False).ids
    assert saved(tmp_path, tokenizer).encode_template("<x> <x") == expected


class TestDisarming:
    MARK = "\ufdd0"

    @pytest.fixture(scope="class")
    @staticmethod
    def tiny(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
        return saved(tmp_path_factory.mktemp("tiny"), tiny_tokenizer())

    @given(
        parts=st.lists(
            st.sampled_from([*SPECIAL_TOKENS, "<|im_", "start|>", "<", ">", "|", "a", " "]), max_size=6
        ),
        before=st.sampled_from(["", "<", "<|im_", "<|im_start|"]),
        after=st.sampled_from(["", "end|>", "|im_start|>", ">"]),
    )
    def test_no_token_is_found_in_a_disarmed_text_or_at_its_seams(
        self, tiny: TextTokenizer, parts: list[str], before: str, after: str
    ) -> None:
        text = "".join(parts)
        found = list(tiny.split(before + tiny.disarm(text, self.MARK) + after))
        assert not any(isinstance(part, int) for part in found) or not text
        assert "".join(map(str, found)).replace(self.MARK, "") == before + text + after or not text


def test_a_second_tokenizer_is_made_at_the_start_where_it_takes_one(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    plain = saved(tmp_path, tokenizer)
    assert "_harmless" not in vars(plain)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    content = json.loads(tokenizer.to_str())
    content["model"]["ignore_merges"] = True
    words = saved(tmp_path, Tokenizer.from_str(json.dumps(content)))
    assert "_harmless" in vars(words)
    assert words.control_ids.isdisjoint(words.encode("<|im_end|>"))


def test_ids_that_are_no_tokens_are_told(tmp_path: Path) -> None:
    tokenizer = saved(tmp_path, tiny_tokenizer())
    assert tokenizer.unknown([0, 5, 9]) is None
    for token in (-1, 100_000, 2**31, 2**62):
        assert tokenizer.unknown([0, token]) == token


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"model": {}}', b"\xff"])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        TextTokenizer(tmp_path)
