"""A look at a model's directory: what is told of a good one, and each way in which one is bad."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from copydesk.inference.inspection import ModelReport, Problem, Severity, inspect_model, target_of, this_machine
from copydesk.inference.inspection.memory import packed_bytes
from tests.fixtures.tiny_model import EOS_ID, write_tiny_model

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
QUERY = "model.layers.1.self_attn.q_proj.weight"

Header = dict[str, Any]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model")


def split(path: Path) -> tuple[Header, bytes]:
    """Read a safetensors file: its header, and what is behind it."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(path: Path, header: Header | bytes, data: bytes) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def change(path: Path, edit: Callable[[Header], object]) -> None:
    """Change the header of a file, and leave its data."""
    header, data = split(path)
    edit(header)
    join(path, header, data)


def drop(path: Path, *names: str) -> None:
    """Write a file again without some of its tensors."""
    header, data = split(path)
    kept: Header = {}
    packed = b""
    for name, entry in header.items():
        if name in names or name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        kept[name] = {**entry, "data_offsets": [len(packed), len(packed) + last - first]}
        packed += data[first:last]
    join(path, kept, packed)


def configure(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def shard(directory: Path) -> dict[str, str]:
    """Split the weights over two files with an index, and return what it says."""
    header, _ = split(directory / WEIGHTS)
    names = sorted(name for name in header if name != "__metadata__")
    for file, others in ((FIRST, names[5:]), (SECOND, names[:5])):
        (directory / file).write_bytes((directory / WEIGHTS).read_bytes())
        drop(directory / file, *others)
    (directory / WEIGHTS).unlink()
    index = {name: FIRST if place < 5 else SECOND for place, name in enumerate(names)}
    (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return index


def told(report: ModelReport) -> list[str]:
    return [str(problem) for problem in report.problems]


def only(directory: Path) -> Problem:
    """Return the one problem that there is."""
    problems = inspect_model(directory).problems
    assert len(problems) == 1, problems
    return problems[0]


def test_a_good_model_is_described(model: Path) -> None:
    report = inspect_model(model, [this_machine(), target_of("h100-80gb")])
    assert told(report) == []
    assert report.usable
    assert report.architecture == "LlamaForCausalLM"
    assert [(one.engine, one.supported) for one in report.engines] == [("native", True), ("vllm", True)]
    assert report.shape is not None
    assert (report.shape.layers, report.shape.hidden, report.shape.context) == (2, 64, 512)
    header, data = split(model / WEIGHTS)
    assert report.sizes.tensors == len(header) - 1
    assert report.sizes.bytes == len(data)
    assert report.sizes.parameters * 4 == len(data)
    assert list(report.sizes.by_dtype) == ["F32"]
    assert report.tokenizer is not None
    assert report.tokenizer.kind == "BPE"
    assert report.tokenizer.largest_id == report.shape.vocabulary - 1
    assert report.prompt is not None
    assert report.prompt.prompt == f"<|im_start|>{report.prompt.example}<|im_end|>"
    assert report.prompt.stop_tokens == ("<|im_end|>",)
    assert [one.arithmetic for one in report.memory] == ["int8", "bfloat16", "float32", "bfloat16"]


def test_a_sharded_model_is_as_good(model: Path) -> None:
    whole = inspect_model(model)
    shard(model)
    report = inspect_model(model)
    assert told(report) == []
    assert report.sizes.files == 2
    assert report.sizes.by_dtype == whole.sizes.by_dtype


def test_the_weights_themselves_are_not_read(model: Path) -> None:
    header, data = split(model / WEIGHTS)
    with (model / WEIGHTS).open("r+b") as file:  # a file of a terabyte, nearly all of it a hole
        header["zz"] = {"dtype": "U8", "shape": [1 << 40], "data_offsets": [len(data), len(data) + (1 << 40)]}
        text = json.dumps(header).encode()
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + len(data) + (1 << 40))
    report = inspect_model(model)
    assert report.sizes.bytes == len(data) + (1 << 40)
    assert told(report) == ["the weights have tensors that nothing reads: zz"]


HeaderCase = tuple[Callable[[Header], object], str]
HEADERS: dict[str, HeaderCase] = {
    "overlap": (
        lambda h: h[EMBEDDING].update(data_offsets=[n - 4 for n in h[EMBEDDING]["data_offsets"]]),
        "overlap",
    ),
    "gap": (lambda h: h.pop(EMBEDDING), "belong to no"),
    "shape": (
        lambda h: h[EMBEDDING].update(shape=[3, 3]),
        "of shape [3, 3] in F32 takes 36 bytes, and has",
    ),
    "huge": (lambda h: h[EMBEDDING].update(shape=[10**30, 10**30]), "takes far too many bytes, and has"),
    "negative": (lambda h: h[EMBEDDING].update(shape=[-1, 64]), "has the shape [-1, 64]; expected whole numbers"),
    "type": (lambda h: h[EMBEDDING].update(dtype="Q4"), "has the type 'Q4', which is none of the format's"),
    "offsets": (lambda h: h[EMBEDDING].update(data_offsets=[8, 4]), "has the data_offsets [8, 4]; expected"),
    "boolean": (lambda h: h[EMBEDDING].update(data_offsets=[False, True]), "has the data_offsets [False, True]"),
    "entry": (lambda h: h.update({EMBEDDING: 3}), f"tensor {EMBEDDING} is described by 3; expected an object"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_that_contradicts_itself_is_refused(case: str, model: Path) -> None:
    edit, words = HEADERS[case]
    change(model / WEIGHTS, edit)
    problem = only(model)
    assert problem.severity is Severity.ERROR
    assert problem.about == WEIGHTS
    assert words in problem.what
    assert problem.advice == "get the file again"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it has 0 bytes, too few for a safetensors file"),
        (b"\xff" * 8 + b"{}", "bytes; expected 100,000,000 at the most"),
        (
            (90_000_000).to_bytes(8, "little") + b"{}",
            "its header has 90,000,000 bytes, and 2 are there",
        ),
        ((2).to_bytes(8, "little") + b"[]", "its header is no JSON object"),
        ((3).to_bytes(8, "little") + b"{]}", "its header is no JSON ("),
        ((2).to_bytes(8, "little") + b"\xff\xfe", "its header is no JSON ("),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "its header is no JSON ("),
        ((14).to_bytes(8, "little") + b'{"a":1, "a":2}', "its header has 'a' twice"),
        ((5000 + 5).to_bytes(8, "little") + b'{"a":' + b"9" * 5000, "its header is no JSON ("),
        (b"PK\x03\x04" + bytes(60), "it is no safetensors file but an archive as torch.save writes it"),
        (b"\x80\x02}q\x00." + bytes(60), "it is no safetensors file but pickled data"),
        (b"GGUF" + bytes(60), "it is no safetensors file but a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS, not the file itself"),
    ],
)
def test_what_is_no_safetensors_file_is_named(content: bytes, words: str, model: Path) -> None:
    (model / WEIGHTS).write_bytes(content)
    problem = only(model)
    assert problem.about == WEIGHTS
    assert words in problem.what


@pytest.mark.parametrize(
    ("bytes_off", "words"), [(-100, "it is cut short: its tensors"), (7, "7 bytes at its end")]
)
def test_a_file_of_another_length_is_refused(bytes_off: int, words: str, model: Path) -> None:
    path = model / WEIGHTS
    os.truncate(path, path.stat().st_size + bytes_off)
    assert words in only(model).what


def test_a_missing_shard_is_named_and_nothing_is_said_of_what_it_holds(model: Path) -> None:
    shard(model)
    (model / SECOND).unlink()
    assert str(only(model)) == f"{SECOND}: the shard is missing, which {INDEX} names; get it again"


def test_a_shard_that_no_index_names_is_refused(model: Path) -> None:
    shard(model)
    (model / "model-00003-of-00003.safetensors").write_bytes((model / FIRST).read_bytes())
    assert f"it is a shard that {INDEX} does not name" in only(model).what
    (model / INDEX).unlink()
    assert inspect_model(model).errors[0].what == "there is no index for the shards that are there"


def test_an_index_that_does_not_fit_its_shards_is_refused(model: Path) -> None:
    index = shard(model)
    index[EMBEDDING] = SECOND if index[EMBEDDING] == FIRST else FIRST
    (model / INDEX).write_text(json.dumps({"weight_map": index}))
    assert only(model).what == f"it looks for {EMBEDDING} where they are not"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "it has no weight_map"),
        ('{"weight_map": {}}', "weight_map is empty"),
        ('{"weight_map": 3}', "it cannot be read"),
        ("{", "it cannot be read"),
        ('{"weight_map": {"a": "../model/x.safetensors"}}', "it names a file outside of the directory"),
    ],
)
def test_an_index_that_is_none_is_refused(content: str, words: str, model: Path) -> None:
    shard(model)
    (model / INDEX).write_text(content)
    assert any(problem.about == INDEX and words in problem.what for problem in inspect_model(model).errors)


def test_a_tensor_in_two_shards_is_refused(model: Path) -> None:
    shard(model)
    whole = write_tiny_model(model.parent / "whole")
    (model / FIRST).write_bytes((whole / WEIGHTS).read_bytes())
    assert "in model-00001-of-00002.safetensors too" in inspect_model(model).errors[0].what


def test_pickled_weights_are_refused_and_never_opened(model: Path) -> None:
    (model / WEIGHTS).unlink()
    os.mkfifo(model / "pytorch_model.bin")  # whoever opened it would wait for ever
    problem = only(model)
    assert problem.about == "pytorch_model.bin"
    assert "which can run any program as it is read; it was not opened" in problem.what
    assert "convert it to safetensors" in problem.advice


def test_a_pickle_beside_real_weights_is_a_warning(model: Path) -> None:
    (model / "training_args.bin").write_bytes(b"\x80\x04.")
    assert only(model).severity is Severity.WARNING
    assert inspect_model(model).usable


def test_what_is_no_ordinary_file_is_not_opened(model: Path) -> None:
    (model / WEIGHTS).unlink()
    os.mkfifo(model / WEIGHTS)
    assert str(only(model)) == f"{WEIGHTS}: it is no ordinary file"


def test_links_that_lead_outside_are_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes((model / WEIGHTS).read_bytes())
    (model / WEIGHTS).unlink()
    (model / WEIGHTS).symlink_to(tmp_path / "elsewhere")
    assert "link to a file outside of the directory" in only(model).what
    (tmp_path / "elsewhere").unlink()
    assert "it is a link that leads nowhere" in inspect_model(model).errors[0].what


def test_links_as_in_the_cache_of_hugging_face_are_fine(model: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a" / "snapshots" / "1", tmp_path / "models--a" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for path in model.iterdir():
        path.rename(blobs / path.name)
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert told(inspect_model(snapshot)) == []


def test_a_directory_that_is_none_is_named(tmp_path: Path) -> None:
    assert str(only(tmp_path / "a")) == f"{tmp_path / 'a'}: there is no such directory"
    (tmp_path / "file").write_text("")
    assert "it is no directory" in only(tmp_path / "file").what
    (tmp_path / "empty").mkdir()
    assert {problem.about for problem in inspect_model(tmp_path / "empty").problems} == {
        "config.json",
        WEIGHTS,
        "tokenizer.json",
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 1}, "config.json: num_hidden_layers is 1, and the weights have 2 layers"),
        ({"num_hidden_layers": 3}, "config.json: num_hidden_layers is 3, and the weights have 2 layers"),
        ({"num_hidden_layers": 10**9}, "config.json: num_hidden_layers is 1000000000; expected 10000 at the most"),
        ({"intermediate_size": 256}, "it has the shape [128, 64]; config.json implies [256, 64]"),
        ({"vocab_size": 4}, "its largest token id is"),
        ({"attention_bias": True}, "the weights lack model.layers.0.self_attn.q_proj.bias"),
        ({"eos_token_id": 5000}, "config.json: eos_token_id is 5000, and the embedding has"),
        ({"rope_theta": "x"}, "config.json: Expected `float`, got `str` - at `$.rope_theta`"),
        (
            {"num_attention_heads": True},
            "num_attention_heads is True; expected a whole number above 0",
        ),
        ({"hidden_size": None}, "config.json: hidden_size is missing"),
    ],
)
def test_a_configuration_that_contradicts_the_weights_is_refused(
    changes: dict[str, Any], words: str, model: Path
) -> None:
    configure(model, **changes)
    report = inspect_model(model)
    assert not report.usable
    reasons = [engine.reason for engine in report.engines]
    assert any(words in line for line in [*told(report), *reasons]), told(report)


def test_a_head_that_is_tied_or_not_is_told_apart(model: Path) -> None:
    configure(model, tie_word_embeddings=True)
    assert only(model).severity is Severity.WARNING
    assert "tie_word_embeddings is true, so that the embedding is used in its place" in only(model).what
    configure(model, tie_word_embeddings=False)
    drop(model / WEIGHTS, HEAD)
    problem = only(model)
    assert str(problem).startswith(f"{HEAD}: it is missing, and tie_word_embeddings is not true; set that to true")


def test_a_tensor_that_is_missing_or_stored_in_another_type_is_named(model: Path) -> None:
    header, _ = split(model / WEIGHTS)
    change(model / WEIGHTS, lambda h: h[QUERY].update(dtype="I32"))
    problem = only(model)
    assert (problem.about, problem.what) == (QUERY, "it is stored as I32; expected F32, BF16 or F16")
    drop(model / WEIGHTS, QUERY)
    assert only(model).what == f"the weights lack {QUERY}"
    assert header[QUERY]["dtype"] == "F32"


def test_quantised_weights_need_their_scales_and_a_word_in_the_configuration(model: Path) -> None:
    def narrow(header: Header) -> None:
        rows, columns = header[QUERY]["shape"]
        header[QUERY].update(dtype="F8_E4M3", shape=[rows * 4, columns])

    change(model / WEIGHTS, narrow)
    assert "stored as F8_E4M3; expected F32, BF16 or F16" in " ".join(told(inspect_model(model)))
    quantisation = {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"strategy": "tensor"}}},
    }
    configure(model, quantization_config=quantisation)
    report = inspect_model(model)
    assert report.quantisation is not None
    assert (report.quantisation.scheme, report.quantisation.per_tensor) == ("fp8", True)
    assert report.quantisation.ignore == ("lm_head",)
    assert any("lack the scales of" in line for line in told(report))


def test_a_quantised_model_is_whole_with_its_scales(model: Path) -> None:
    plain = inspect_model(model).sizes
    header, data = split(model / WEIGHTS)
    narrowed: Header = {}
    packed = b""

    def put(name: str, dtype: str, shape: list[int], content: bytes) -> None:
        nonlocal packed
        narrowed[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [len(packed), len(packed) + len(content)],
        }
        packed += content

    for name, entry in header.items():
        if name.endswith("_proj.weight"):
            rows, columns = entry["shape"]
            put(name, "I8", [rows, columns], bytes(rows * columns))
            put(f"{name}_scale", "BF16", [rows, 1], bytes(2 * rows))
        elif name != "__metadata__":
            first, last = entry["data_offsets"]
            put(name, entry["dtype"], entry["shape"], data[first:last])
    join(model / WEIGHTS, narrowed, packed)
    configure(model, quantization_config={"quant_method": "compressed-tensors", "format": "int-quantized"})
    report = inspect_model(model)
    assert told(report) == []
    assert report.sizes.parameters == plain.parameters
    assert report.quantisation is not None
    assert report.quantisation.scheme == "int8"


def test_an_architecture_that_only_others_compute_is_told_by_the_engines(model: Path) -> None:
    configure(model, architectures=["GemmaForCausalLM"])
    report = inspect_model(model)
    assert [engine.supported for engine in report.engines] == [False, True]
    assert "GemmaForCausalLM" in report.engines[0].reason
    assert report.usable
    configure(model, architectures=["FooForCausalLM"])
    assert [engine.supported for engine in inspect_model(model).engines] == [False, None]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", "[]", "expected a JSON object"),
        ("config.json", "{", "it cannot be read"),
        ("tokenizer.json", "{}", "it cannot be read"),
        ("tokenizer.json", None, "there is no such file"),
        ("chat_template.jinja", None, "has no chat template: add chat_template.jinja"),
        ("chat_template.jinja", "{% for x in y %}", "the chat template in"),
        ("chat_template.jinja", "{{ messages.__class__.__mro__ }}", "the chat template in"),
        ("copydesk.json", '{"min_similarity": 3}', "min_similarity"),
        ("copydesk.json", '{"stop_tokens": ["<none>"]}', "the tokenizer has no token '<none>'"),
    ],
)
def test_a_file_that_says_nothing_usable_is_named(name: str, content: str | None, words: str, model: Path) -> None:
    if content is None:
        (model / name).unlink()
    else:
        (model / name).write_text(content)
    report = inspect_model(model)
    assert not report.usable
    assert any(words in line for line in told(report)), told(report)


def test_a_model_that_never_ends_is_refused(model: Path) -> None:
    configure(model, eos_token_id=None)
    (model / "generation_config.json").unlink()
    tokenizer = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "eos_token": None}))
    assert "names no stop token" in only(model).what
    assert EOS_ID == 2


@pytest.mark.parametrize("name", ["h100-80gb", "L4-24GB", "64gb", "mi300-192gb"])
def test_a_target_has_the_memory_of_its_name(name: str) -> None:
    target = target_of(name)
    assert target.memory == int(name.lower().removesuffix("gb").rpartition("-")[2]) << 30


def test_slots_are_what_memory_is_left_for(model: Path) -> None:
    whole = inspect_model(model, [target_of("l4-24gb")]).memory[0]
    assert whole.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2  # two layers, keys and values, two heads of 16, bfloat16
    usable = int(whole.total * 0.9)
    assert whole.slots == (usable - whole.fixed - whole.weights) // (whole.kv_bytes_per_token * 512)
    half = inspect_model(model, [target_of("l4-24gb")], context=256).memory[0]
    assert half.slots // 2 == whole.slots


def test_packed_weights_take_what_the_engine_says() -> None:
    from copydesk.inference.engine.compiled import load_library
    from copydesk.inference.engine.native.config import ModelConfig
    from copydesk.inference.engine.native.int8.packing import block_size, shape_of
    from copydesk.inference.engine.native.rope import Rope
    from copydesk.inference.inspection import Shape

    sizes: dict[str, Any] = {
        "vocabulary": 1000,
        "hidden": 200,
        "intermediate": 500,
        "layers": 3,
        "heads": 5,
        "kv_heads": 1,
    }
    config = ModelConfig(**sizes, head_dim=40, positions=64, norm_epsilon=1e-5, rope=Rope(1e4), tied=True)
    block = block_size(load_library(), shape_of(config))
    assert packed_bytes(Shape(**sizes, head_dim=40, context=64, tied=True)) == pytest.approx(block, rel=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        INDEX,
    ],
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name: str, model: Path) -> None:
    (model / name).unlink(missing_ok=True)
    os.mkfifo(model / name)
    assert not inspect_model(model).usable


def test_a_file_without_an_end_is_not_read_to_it(model: Path) -> None:
    (model / "tokenizer_config.json").unlink()
    (model / "tokenizer_config.json").symlink_to("/dev/zero")
    assert not inspect_model(model).usable


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "copydesk.json", INDEX]
)
@pytest.mark.parametrize(
    "content", [b"[" * 200_000, b"\xff\xfe{}", b'{"a": 1e999}', b"0" * 20, b'{"chat_template": [1]}']
)
def test_whatever_a_file_says_it_is_looked_at(name: str, content: bytes, model: Path) -> None:
    (model / name).write_bytes(content)
    inspect_model(model)


def test_a_template_that_knows_no_bounds_is_refused(model: Path) -> None:
    (model / "chat_template.jinja").write_text("{{ messages[0].content * 10 ** 11 }}")
    (problem,) = inspect_model(model).errors
    assert "too much memory" in problem.what


def test_numbers_beyond_all_bounds_are_told(model: Path) -> None:
    numbers = dict.fromkeys(("num_hidden_layers", "head_dim", "num_key_value_heads"), 10_000)
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(settings | numbers | {"vocab_size": 1 << 39}))
    report = inspect_model(model, [this_machine()])
    assert msgspec.json.encode(report)


@pytest.mark.parametrize("shape", [[int("9" * 4_000)] * 1_000, [10**30] * 100_000])
def test_a_shape_whose_product_has_no_end_is_refused(shape: list[int], model: Path) -> None:
    change(model / WEIGHTS, lambda header: header[EMBEDDING].update(shape=shape))
    assert only(model).about == WEIGHTS
