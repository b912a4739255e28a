from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from copydesk.common.tasks import CorrectedSentence, Outcome
from copydesk.inference.correction import (
    CorrectionSettings,
    Corrector,
    EncodedSentence,
    MissingChatTemplateError,
    MissingStopTokenError,
    ModelFileError,
)
from copydesk.inference.engine import Finish, GeneratedTokens
from tests.fixtures.tiny_model import tiny_tokenizer, write_tiny_model
from tests.unit.correction.conftest import Edit

SOURCE = "She go to school every day."
TEMPLATE = "{{ bos_token }}{{ messages[-1].content }}{{ eos_token }}"


@pytest.fixture
def corrector(model: Path) -> Corrector:
    return Corrector.load(model)


def answer(corrector: Corrector, text: str, finish: Finish = Finish.STOP) -> GeneratedTokens:
    tokens = corrector.tokens.source(text)
    return GeneratedTokens(tokens, finish, prompt_tokens=9, completion_tokens=len(tokens) + 1)


def decode(corrector: Corrector, source: str, target: str, finish: Finish = Finish.STOP) -> CorrectedSentence:
    return corrector.decode(corrector.encode(source), answer(corrector, target, finish))


def test_a_sentence_becomes_a_request(corrector: Corrector) -> None:
    sentence = corrector.encode(SOURCE)
    expected = tiny_tokenizer().encode(f"<|im_start|>{SOURCE}<|im_end|>").ids
    assert sentence.fits
    assert sentence.prompt == expected
    assert sentence.source == expected[1:-1]
    request = sentence.request()
    assert (request.prompt, request.source, request.stop_ids) == (expected, sentence.source, [2])
    assert request.max_tokens == int(1.35 * (len(expected) - 2)) + 12


def test_a_correction_is_taken(corrector: Corrector) -> None:
    target = "She goes to school every day."
    corrected = decode(corrector, SOURCE, target)
    assert (corrected.text, corrected.outcome) == (target, Outcome.CORRECTED)
    assert corrected.prompt_tokens == len(corrector.encode(SOURCE).prompt)
    assert corrected.completion_tokens == len(corrector.encode(target).source) + 1


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.DEADLINE, Finish.CANCELLED])
def test_an_answer_without_its_end_is_not_taken(corrector: Corrector, finish: Finish) -> None:
    corrected = decode(corrector, SOURCE, "She goes to school every", finish)
    assert (corrected.text, corrected.outcome) == (SOURCE, Outcome.TRUNCATED)
    assert corrected.completion_tokens > 1


def test_an_answer_about_something_else_is_not_taken(corrector: Corrector) -> None:
    corrected = decode(corrector, SOURCE, "I am a helpful assistant.")
    assert (corrected.text, corrected.outcome) == (SOURCE, Outcome.DISSIMILAR)


def test_an_empty_answer_leaves_the_sentence(corrector: Corrector) -> None:
    for target in ("", "  ", "\n"):
        assert decode(corrector, SOURCE, target).text == SOURCE
        assert decode(corrector, SOURCE, target).outcome is Outcome.CORRECTED


def test_an_answer_comes_back_on_one_stripped_line(corrector: Corrector) -> None:
    assert (
        decode(corrector, SOURCE, " She goes to school\n\n every day. \r\n").text
        == "She goes to school every day."
    )


def test_broken_characters_are_not_taken(corrector: Corrector) -> None:
    sentence = corrector.encode("They met at the café on Monday.")
    tokens = list(sentence.source)
    e_acute = corrector.tokens.source("é")
    tokens.remove(e_acute[-1])
    broken = GeneratedTokens(tokens, Finish.STOP, 9, len(tokens) + 1)
    assert "\ufffd" in corrector.tokens.text(tokens)
    assert corrector.decode(sentence, broken).outcome is Outcome.DISSIMILAR
    typed = decode(corrector, "What does \ufffd mean?", "What does \ufffd mean?")
    assert typed.outcome is Outcome.CORRECTED


def test_what_does_not_fit_the_context_is_not_asked(model: Path) -> None:
    fitting = Corrector.load(model).encode(SOURCE)
    needed = len(fitting.prompt) + fitting.max_tokens
    assert Corrector.load(model, context=needed).encode(SOURCE).fits
    corrector = Corrector.load(model, context=needed - 1)
    sentence = corrector.encode(SOURCE)
    assert not sentence.fits
    assert corrector.refuse(sentence) == CorrectedSentence(SOURCE, Outcome.TOO_LONG, len(sentence.prompt), 0)


def test_an_engine_does_not_extend_the_context_of_the_model(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "short", layers=1, context=40)
    assert Corrector.load(model, context=4096).context == 40


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip).filter(bool))
def test_a_sentence_repeated_comes_back_as_it_was(tiny_corrector: Corrector, text: str) -> None:
    assume(len(text.splitlines()) == 1)
    corrected = decode(tiny_corrector, text, text)
    assert (corrected.text, corrected.outcome) == (text, Outcome.CORRECTED)


@pytest.fixture(scope="module")
def tiny_corrector(tmp_path_factory: pytest.TempPathFactory) -> Corrector:
    return Corrector.load(write_tiny_model(tmp_path_factory.mktemp("tiny"), layers=1))


def test_a_directory_sets_its_own_instruction_and_limits(model: Path, edit_json: Edit) -> None:
    settings = {
        "instruction": "Correct: ",
        "max_tokens_per_source_token": 2,
        "max_tokens_extra": 3,
        "min_similarity": 0,
        "stop_tokens": ["<|endoftext|>"],
    }
    edit_json("copydesk.json", lambda content: content.update(settings))
    corrector = Corrector.load(model)
    sentence = corrector.encode("a b")
    assert sentence.prompt == tiny_tokenizer().encode("<|im_start|>Correct: a b<|im_end|>").ids
    assert sentence.max_tokens == 2 * 3 + 3
    assert sentence.stop_ids == [2, 0]
    assert decode(corrector, "a b", "something else").outcome is Outcome.CORRECTED


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ({"min_similarity": 2}, "min_similarity"),
        ({"max_tokens_extra": 0}, "max_tokens_extra"),
        ({"max_tokens_per_source_token": "1.35"}, "max_tokens_per_source_token"),
        ({"guard": 0.5}, "guard"),
        ({"stop_tokens": ["<|none|>"]}, "stop_tokens"),
    ],
)
def test_a_bad_limit_is_named(model: Path, edit_json: Edit, setting: dict[str, object], field: str) -> None:
    edit_json("copydesk.json", lambda content: content.update(setting))
    with pytest.raises(ModelFileError, match=field) as caught:
        Corrector.load(model)
    assert caught.value.name == "copydesk.json"


def test_stop_ids_come_from_every_file_that_names_one(model: Path, edit_json: Edit) -> None:
    edit_json("generation_config.json", lambda content: content.update(eos_token_id=[5, 2]))
    edit_json("config.json", lambda content: content.update(eos_token_id=7))
    edit_json("tokenizer_config.json", lambda content: content.update(eos_token={"content": "<|endoftext|>"}))
    assert Corrector.load(model).stop_ids == (5, 2, 7, 0)


def test_a_model_without_a_stop_token_is_refused(model: Path, edit_json: Edit) -> None:
    for name in ("generation_config.json", "config.json"):
        edit_json(name, lambda content: content.pop("eos_token_id"))
    edit_json("tokenizer_config.json", lambda content: content.pop("eos_token"))
    with pytest.raises(MissingStopTokenError, match=r"add eos_token_id to generation_config\.json"):
        Corrector.load(model)


@pytest.mark.parametrize("value", ["2", [2, "x"], -1, [None]])
def test_a_stop_token_that_is_no_id_is_named(model: Path, edit_json: Edit, value: object) -> None:
    edit_json("generation_config.json", lambda content: content.update(eos_token_id=value))
    with pytest.raises(ModelFileError, match=r"generation_config\.json: eos_token_id"):
        Corrector.load(model)


@pytest.mark.parametrize(
    "value", [TEMPLATE, [{"name": "rag", "template": "?"}, {"name": "default", "template": TEMPLATE}]]
)
def test_the_template_may_stand_in_the_tokenizer_config(model: Path, edit_json: Edit, value: object) -> None:
    (model / "chat_template.jinja").unlink()
    edit_json("tokenizer_config.json", lambda content: content.update(chat_template=value))
    sentence = Corrector.load(model).encode("a")
    assert (sentence.prompt[0], sentence.prompt[-1]) == (1, 2)


def test_a_model_without_a_template_is_told_what_to_add(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    with pytest.raises(MissingChatTemplateError, match=r"add chat_template\.jinja"):
        Corrector.load(model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_named(model: Path, name: str) -> None:
    (model / name).unlink()
    with pytest.raises(ModelFileError, match=rf"{name}: there is no such file"):
        Corrector.load(model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "generation_config.json", "copydesk.json"])
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b"null"])
def test_a_damaged_file_is_named(model: Path, name: str, content: bytes) -> None:
    (model / name).write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        Corrector.load(model)
    assert (caught.value.directory, caught.value.name) == (model, name)


def test_a_context_that_is_no_number_is_named(model: Path, edit_json: Edit) -> None:
    edit_json("config.json", lambda content: content.update(max_position_embeddings="many"))
    with pytest.raises(ModelFileError, match="max_position_embeddings"):
        Corrector.load(model)


def test_default_limits_are_those_of_the_default_model() -> None:
    from copydesk.models import gec_en

    content = json.loads((gec_en.files() / "copydesk.json").read_text(encoding="utf-8"))
    defaults = CorrectionSettings()
    assert content["max_tokens_per_source_token"] == defaults.max_tokens_per_source_token
    assert content["max_tokens_extra"] == defaults.max_tokens_extra
    assert content["min_similarity"] == defaults.min_similarity
    assert CorrectionSettings().max_tokens(20) == 39


def test_an_encoded_sentence_keeps_its_text_whatever_the_outcome() -> None:
    sentence = EncodedSentence(SOURCE, [1, 2], [3], 12, [2], fits=True)
    assert sentence.keep(Outcome.TRUNCATED, 5) == CorrectedSentence(SOURCE, Outcome.TRUNCATED, 2, 5)


def test_a_text_far_beyond_the_context_is_not_tokenised(
    corrector: Corrector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_sentence: str) -> list[int]:
        raise AssertionError("tokenised")

    monkeypatch.setattr(corrector.tokens, "source", never)
    text = "She go. " * 500_000
    sentence = corrector.encode(text)
    assert not sentence.fits
    assert corrector.refuse(sentence) == CorrectedSentence(text, Outcome.TOO_LONG, 0, 0)
