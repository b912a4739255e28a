from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import deserialize
from tokenizers import Tokenizer

from copydesk.inference.checkpoint import prepare, source
from copydesk.inference.checkpoint.adapter import Adapter
from copydesk.inference.checkpoint.errors import AdapterError, FileDigestError
from copydesk.inference.checkpoint.gguf import GgufModel
from tests.unit.checkpoint.tiny_gguf import Weights, write_gguf

Q = "model.layers.1.self_attn.q_proj.weight"


def read_tensors(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    entries = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    return {name: (entry["dtype"], entry["shape"], bytes(entry["data"])) for name, entry in entries}


@pytest.fixture
def written(tmp_path: Path, gguf_path: Path, adapter_folder: Path) -> Path:
    folder = tmp_path / "written"
    folder.mkdir()
    prepare.write_model(folder, GgufModel(gguf_path), Adapter(adapter_folder), adapter_folder, lambda *_: None)
    return folder


def test_the_directory_has_what_hugging_face_libraries_look_for(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == {
        "chat_template.jinja",
        "config.json",
        "copydesk.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((written / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert (config["num_hidden_layers"], config["num_key_value_heads"], config["rope_theta"]) == (2, 2, 50000.0)
    assert config["tie_word_embeddings"] is True
    assert json.loads((written / "generation_config.json").read_text(encoding="utf-8"))["eos_token_id"] == 2
    tokenizer = Tokenizer.from_file(str(written / "tokenizer.json"))
    assert tokenizer.encode("<|im_start|>the<|im_end|>").ids[-1] == 2


def test_weights_are_bfloat16_and_only_adapted_ones_differ_from_the_base(written: Path, gguf_path: Path) -> None:
    tensors = read_tensors(written / "model.safetensors")
    assert {dtype for dtype, _, _ in tensors.values()} == {"BF16"}
    changed = set()
    for name, weight in GgufModel(gguf_path).tensors():
        assert tensors[name][1] == list(weight.shape)
        if tensors[name][2] != weight.astype(ml_dtypes.bfloat16).tobytes():
            changed.add(name)
    assert changed == {
        f"model.layers.{layer}.{part}.weight" for layer in (0, 1) for part in ("self_attn.q_proj", "mlp.down_proj")
    }


def test_the_adapter_meets_rows_in_hugging_face_order(
    tmp_path: Path, weights: Weights, adapter_folder: Path, written: Path
) -> None:
    zero = weights | {Q: np.zeros_like(weights[Q])}
    base = GgufModel(write_gguf(tmp_path / "zero.gguf", zero))
    adapter = Adapter(adapter_folder)
    expected = adapter.merge(Q, dict(base.tensors())[Q].astype(ml_dtypes.bfloat16)).astype(np.float64)
    with_weights = np.frombuffer(read_tensors(written / "model.safetensors")[Q][2], ml_dtypes.bfloat16)
    change = with_weights.reshape(64, 64).astype(np.float64) - weights[Q]
    assert np.abs(change - expected).max() < 0.15
    assert np.abs(expected).max() > 2


def test_an_adapter_for_another_model_is_refused(tmp_path: Path, weights: Weights, adapter_folder: Path) -> None:
    fewer = {name: weight for name, weight in weights.items() if ".1." not in name}
    base = GgufModel(write_gguf(tmp_path / "fewer.gguf", fewer))
    with pytest.raises(AdapterError, match=r"the base model has no model\.layers\.1"):
        prepare.write_model(tmp_path, base, Adapter(adapter_folder), adapter_folder, lambda *_: None)


def test_progress_only_grows(tmp_path: Path, gguf_path: Path, adapter_folder: Path) -> None:
    shares: list[float] = []
    prepare.write_model(
        tmp_path,
        GgufModel(gguf_path),
        Adapter(adapter_folder),
        adapter_folder,
        lambda _, share: shares.append(share),
    )
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1


def test_a_base_model_with_other_content_is_not_used(
    tmp_path: Path, gguf_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPYDESK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(source, "installed_base", lambda: gguf_path)
    with pytest.raises(FileDigestError):
        prepare.prepare_default_model()
    assert not prepare.default_model_directory().exists()


def test_a_full_disk_is_an_os_error_whichever_file_meets_it(
    tmp_path: Path, gguf_path: Path, adapter_folder: Path
) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "model.safetensors"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).symlink_to("/dev/full")
        with pytest.raises(OSError, match="No space left"):
            prepare.write_model(
                folder, GgufModel(gguf_path), Adapter(adapter_folder), adapter_folder, lambda *_: None
            )
