"""A model directory made half as large: what is in it, always the same bytes, whole or not at all."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from copydesk.inference.checkpoint import read_digest
from copydesk.inference.checkpoint.manifest import check_contents
from copydesk.inference.quantisation.arithmetic import dequantise_weight, quantise_weight
from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.plan import PrecisionPlan
from copydesk.inference.quantisation.report import read_report
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale, parse_quantisation
from tests.fixtures.tiny_model import write_tiny_model

LINEAR = [
    f"model.layers.{layer}.{kind}_proj"
    for layer in range(2)
    for kind in (*(f"self_attn.{name}" for name in "qkvo"), "mlp.gate", "mlp.up", "mlp.down")
]


def quantise(source: Path, out: Path, plan: PrecisionPlan | None = None, **options: Any) -> Path:
    quantise_directory(source, out, plan or PrecisionPlan(), measure=False, **options)
    return out


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def all_tensors(directory: Path) -> dict[str, torch.Tensor]:
    return {name: t for path in sorted(directory.glob("*.safetensors")) for name, t in load_file(path).items()}


def sharded(source: Path, target: Path, count: int = 3) -> Path:
    """The same model in several files with an index."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors = load_file(source / "model.safetensors")
    file_of = {name: f"model-{place % count}.safetensors" for place, name in enumerate(sorted(tensors))}
    for file in set(file_of.values()):
        save_file({name: tensors[name] for name in tensors if file_of[name] == file}, target / file)
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": file_of}))
    return target


@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("per_tensor", [False, True])
def test_linear_maps_are_stored_in_8_bits_and_all_else_as_it_was(
    source: Path, tmp_path: Path, scheme: Scheme, per_tensor: bool
) -> None:
    out = quantise(source, tmp_path / "out", PrecisionPlan(scheme, per_tensor))
    before, after = load_file(source / "model.safetensors"), load_file(out / "model.safetensors")
    weights = {f"{name}.weight" for name in LINEAR}
    assert after.keys() == before.keys() | {f"{name}_scale" for name in weights}
    scale_kind = WeightScale.TENSOR if per_tensor else WeightScale.CHANNEL
    for name, tensor in before.items():
        if name not in weights:
            assert torch.equal(after[name], tensor)
            continue
        stored, scale = quantise_weight(tensor.float().numpy(), scheme, scale_kind)
        assert after[name].view(torch.uint8).numpy().tobytes() == stored.tobytes()
        assert after[f"{name}_scale"].dtype == torch.bfloat16
        assert after[f"{name}_scale"].float().numpy().tolist() == scale.astype(np.float32).tolist()
    config = json.loads((out / "config.json").read_text())
    assert parse_quantisation(config) == Quantisation(scheme, scale_kind, ("lm_head",))
    del config["quantization_config"]
    assert config == json.loads((source / "config.json").read_text())


def test_what_is_kept_has_no_scale_and_its_original_weight(source: Path, tmp_path: Path) -> None:
    out = quantise(source, tmp_path / "out", PrecisionPlan(keep=("attention", "model.layers.1.mlp.down_proj")))
    config = parse_quantisation(json.loads((out / "config.json").read_text()))
    assert config is not None
    before, after = load_file(source / "model.safetensors"), load_file(out / "model.safetensors")
    for name in LINEAR:
        is_kept = ".self_attn." in name or name == "model.layers.1.mlp.down_proj"
        assert config.quantises(name) is not is_kept
        assert (f"{name}.weight_scale" not in after) is is_kept
        assert torch.equal(after[f"{name}.weight"].float(), before[f"{name}.weight"].float()) is is_kept


def test_tokenizer_template_settings_and_licence_come_along_and_code_and_pickles_do_not(
    source: Path, tmp_path: Path
) -> None:
    for name in ("copydesk.json", "merges.txt", "tokenizer.model", "LICENSE", "NOTICE.md"):
        (source / name).write_text("{}")
    for name in ("modeling.py", "training_args.bin", "optimizer.pt", "README.md", ".hidden.json"):
        (source / name).write_text("no")
    out = quantise(source, tmp_path / "out")
    copied = {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"}
    copied |= {"copydesk.json", "merges.txt", "tokenizer.model", "LICENSE", "NOTICE.md"}
    assert {name: content for name, content in contents(out).items() if name in copied} == {
        name: content for name, content in contents(source).items() if name in copied
    }
    assert contents(out).keys() - copied == {"config.json", "model.safetensors", "copydesk-manifest.json"}


def test_the_same_input_and_plan_give_the_same_bytes_from_anywhere(source: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(source, tmp_path / "elsewhere" / "another-name")
    plan = PrecisionPlan(keep=("*.0.mlp.down_proj", "mlp"))
    same = PrecisionPlan(keep=("re:.*mlp",))
    one, other = quantise(source, tmp_path / "one", plan), quantise(elsewhere, tmp_path / "other", same)
    assert contents(one) == contents(other)
    another = quantise(source, tmp_path / "another", PrecisionPlan(keep=("attention",)))
    assert read_digest(one) != read_digest(another)


def test_the_order_of_tensors_in_the_source_does_not_matter(source: Path, tmp_path: Path) -> None:
    tensors = load_file(source / "model.safetensors")
    shuffled = shutil.copytree(source, tmp_path / "shuffled")
    save_file(dict(reversed(tensors.items())), shuffled / "model.safetensors", metadata={"made": "elsewhere"})
    one, other = quantise(source, tmp_path / "one"), quantise(shuffled, tmp_path / "other")
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()


def test_the_manifest_holds_and_the_report_does_not_count(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = quantise_directory(source, out, PrecisionPlan())
    assert check_contents(out).digest == report.digest == read_digest(out)
    assert report.source_digest == read_digest(source)
    assert read_report(out) == report
    (out / "quantisation-report.json").unlink()
    assert check_contents(out).digest == report.digest
    assert contents(quantise(source, tmp_path / "plain")) == contents(out)


def test_a_sharded_source_gives_shards_with_an_index_and_the_same_tensors(source: Path, tmp_path: Path) -> None:
    out = quantise(sharded(source, tmp_path / "shards"), tmp_path / "out")
    plain = load_file(quantise(source, tmp_path / "plain") / "model.safetensors")
    weight_map = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    assert weight_map.keys() == plain.keys()
    for name, file in weight_map.items():
        with safe_open(out / file, framework="pt") as opened:
            assert torch.equal(opened.get_tensor(name).float(), plain[name].float())


def test_files_of_weights_are_bounded_and_a_weight_stays_with_its_scales(source: Path, tmp_path: Path) -> None:
    limit = 40_000
    out = quantise(source, tmp_path / "out", shard_bytes=limit)
    files = sorted(out.glob("model-*.safetensors"))
    assert len(files) > 2
    for path in files:
        tensors = load_file(path)
        assert sum(t.nbytes for t in tensors.values()) <= limit or len(tensors) == 1
        assert all(name.removesuffix("_scale") in tensors for name in tensors)
    assert all_tensors(out).keys() == all_tensors(quantise(source, tmp_path / "plain")).keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_other_floating_point_sources_keep_their_type(source: Path, tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {name: t.to(dtype) for name, t in load_file(source / "model.safetensors").items()}
    save_file(tensors, source / "model.safetensors")
    after = load_file(quantise(source, tmp_path / "out") / "model.safetensors")
    assert after["model.norm.weight"].dtype == dtype
    name = "model.layers.1.mlp.down_proj.weight"
    stored, scale = quantise_weight(tensors[name].float().numpy(), Scheme.FP8, WeightScale.CHANNEL)
    assert torch.equal(after[name].float(), torch.from_numpy(stored.astype(np.float32)))
    assert np.isfinite(dequantise_weight(stored, scale)).all()


def test_memory_is_that_of_a_tensor_and_not_of_a_model(tmp_path: Path) -> None:
    source = write_tiny_model(tmp_path / "original", hidden=256, intermediate=512, layers=12, dtype="bfloat16")
    model = (source / "model.safetensors").stat().st_size
    largest = 4 * 256 * 512
    quantise(source, tmp_path / "once")  # what is loaded and compiled at the first time is no part of it
    tracemalloc.start()
    quantise(source, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * largest
    assert model > 4 * 6 * largest


def test_progress_rises_to_the_end(source: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    quantise_directory(source, tmp_path / "out", PrecisionPlan(), lambda stage, share: seen.append((stage, share)))
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert (shares[0], seen[-1]) == (0.0, ("done", 1.0))
    assert {"quantising", "asking the original", "comparing"} <= {stage for stage, _ in seen}
