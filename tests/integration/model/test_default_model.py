"""The real default model, made from its GGUF and adapter, against transformers' own reading of the same files."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from copydesk.common.tasks import Outcome
from copydesk.inference.checkpoint import (
    default_model_directory,
    prepare_default_model,
    read_digest,
    source,
    verify_default_model,
)
from copydesk.inference.checkpoint.gguf import GgufModel
from copydesk.inference.correction import Corrector
from copydesk.inference.engine import Finish, GeneratedTokens
from copydesk.models import gec_en
from tests.fixtures.default_model import default_model_or_skip

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

DIGEST = "3c0fc634ea4a55efcead1332598ee64d5d50ef71c1ec5b6056ae65fac178bfba"
"""Preparation gives the same bits on every machine; a change of these is a new model."""

CORRECTIONS = {
    "She go to school every day.": "She goes to school every day.",
    "He don't like apples, he like orange.": "He doesn't like apples. He likes orange.",
    "There is many reason why peoples move to big city.": "There are many reasons why people move to a big city.",
    "I look forward to hear from you soon.": "I look forward to hearing from you soon.",
    "The weather is nice today.": "The weather is nice today.",
}

Tensors = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine threads wait for each other longer than they work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The prepared directory, made anew in a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COPYDESK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield default_model_or_skip()


@pytest.fixture(scope="module")
def base_path(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source.installed_base() or source.download_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def reference(base_path: Path) -> Tensors:
    """The base model's weights in bfloat16, as transformers reads them from the GGUF."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        base_path.parent,
        gguf_file=base_path.name,
        dtype=torch.bfloat16,
        quantization_config=transformers.GgufConfig(dequantize=True),
    )
    state: Tensors = loaded.state_dict()
    return state


@pytest.fixture(scope="module")
def network(model: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def corrector(model: Path) -> Corrector:
    return Corrector.load(model)


def as_torch(weight: Any) -> Any:
    return torch.from_numpy(weight.copy()).to(torch.bfloat16)


def wide_sample() -> list[str]:
    """Sentences with digits, white space, scripts, emoji and noise, besides the usual ones."""
    rng = random.Random(7)
    alphabets = [
        "abcdefghij ",
        "0123456789 .,",
        " \t\n\u00a0\u2003  ",
        "äöüßéèñçøåœ ",
        "Привет мир ",
        "日本語中文한국어 ",
        "😀👩‍👩‍👧🏽🇩🇪✈️ ",
        "'`\u2019\u201c\u201d\"!?;:-—…",
    ]
    letters = "".join(alphabets)
    made = ["".join(rng.choices(rng.choice([*alphabets, letters]), k=rng.randrange(1, 40))) for _ in range(1500)]
    return [
        *CORRECTIONS,
        "In 2024, 1,234.56 of 100% paid $5.",
        "  two  spaces ",
        "He's here; they'll 've go",
        *made,
    ]


def test_weights_equal_those_that_transformers_reads(base_path: Path, reference: Tensors) -> None:
    found = {name: as_torch(weight) for name, weight in GgufModel(base_path).tensors()}
    assert found.keys() == reference.keys() - {"lm_head.weight"}
    for name, weight in found.items():
        assert torch.equal(weight, reference[name]), name


def test_the_merged_weights_are_the_adapter_on_top_of_them(model: Path, reference: Tensors) -> None:
    from safetensors.torch import load, load_file

    merged = load_file(model / "model.safetensors")
    adapter = load((gec_en.files() / "adapter_model.safetensors").read_bytes())
    differing = 0
    for name, weight in merged.items():
        key = f"base_model.model.{name.removesuffix('.weight')}"
        expected = reference[name]
        if f"{key}.lora_A.weight" in adapter:
            down, up = (adapter[f"{key}.lora_{part}.weight"].float() for part in "AB")
            expected = (expected.float() + 2.0 * up @ down).to(torch.bfloat16)
        torch.testing.assert_close(weight, expected, rtol=2**-7, atol=1e-6)
        differing += int((weight != expected).sum())
    assert differing < 1000  # of 134 million: sums that fall between two bfloat16 and are rounded the other way


def test_token_ids_equal_those_of_transformers(model: Path, base_path: Path, corrector: Corrector) -> None:
    from_gguf = transformers.AutoTokenizer.from_pretrained(base_path.parent, gguf_file=base_path.name)
    written = transformers.AutoTokenizer.from_pretrained(model)
    for text in wide_sample():
        expected = from_gguf(text, add_special_tokens=False).input_ids
        assert written(text, add_special_tokens=False).input_ids == expected, repr(text)
        assert written(text).input_ids == expected, repr(text)
        assert corrector.tokens.source(text) == expected, repr(text)
        assert corrector.tokens.text(expected) == text


def test_control_tokens_of_the_prompt_equal_those_of_transformers(model: Path, corrector: Corrector) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert corrector.tokens.control_ids == set(tokenizer.all_special_ids) | set(range(17))
    for text in CORRECTIONS:
        chat = [{"role": "user", "content": text}]
        expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True).input_ids
        assert corrector.encode(text).prompt == expected


def test_transformers_corrects_with_the_directory(network: Any, corrector: Corrector) -> None:
    assert network.generation_config.eos_token_id == 2
    for text, expected in CORRECTIONS.items():
        sentence = corrector.encode(text)
        prompt = torch.tensor([sentence.prompt])
        output = network.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=sentence.max_tokens,
            do_sample=False,
        )[0, len(sentence.prompt) :].tolist()
        assert output[-1] in sentence.stop_ids
        answer = GeneratedTokens(output[:-1], Finish.STOP, len(sentence.prompt), len(output))
        corrected = corrector.decode(sentence, answer)
        assert (corrected.text, corrected.outcome) == (expected, Outcome.CORRECTED)


def test_preparation_is_the_same_everywhere_and_done_once(model: Path) -> None:
    assert read_digest(model) == DIGEST
    verify_default_model()
    stages: list[str] = []
    assert prepare_default_model(lambda stage, _share: stages.append(stage)) == model == default_model_directory()
    assert stages == []
