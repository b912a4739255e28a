"""Making the default model: base weights from a GGUF, merged with the correction adapter.

The result is an ordinary Hugging Face directory. It takes about ten seconds, once; afterwards the directory is
found in the cache.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import ml_dtypes
from numpy.typing import NDArray
from safetensors.numpy import save

from copydesk.inference.checkpoint import source
from copydesk.inference.checkpoint.adapter import Adapter
from copydesk.inference.checkpoint.errors import AdapterError
from copydesk.inference.checkpoint.gguf import GgufModel, LlamaShape, Vocabulary
from copydesk.inference.checkpoint.store import ModelStore
from copydesk.inference.checkpoint.tokenizer import build_tokenizer, tokenizer_config
from copydesk.models import gec_en

Progress = Callable[[str, float], None]
"""Called with what is being done and how much of the whole is done, 0 to 1."""

_RECIPE = "1"
"""Grows when the same inputs would be turned into other files, so that cached models are made anew."""

_DATA_FILES = ("adapter_config.json", "adapter_model.safetensors", "chat_template.jinja", "copydesk.json")
_MODEL_BYTES = 300 << 20


def default_model_directory() -> Path:
    """Where the default model is, or will be once it is prepared."""
    return ModelStore.from_environment().directory(gec_en.NAME, _default_key())


def prepare_default_model(progress: Progress | None = None) -> Path:
    """Make the default model unless it is in the cache already, and return its directory.

    Safe to call from several processes at once: one works, the others wait for it.

    Raises:
        BaseModelUnavailableError: The base model is not installed and cannot be downloaded.
        CheckpointError: Anything else that stands in the way; the subclass and its text say what to do.
    """
    report = progress or (lambda _stage, _share: None)
    installed = source.installed_base()
    needed = _MODEL_BYTES if installed else _MODEL_BYTES + source.DOWNLOAD_BYTES
    return ModelStore.from_environment().obtain(
        gec_en.NAME, _default_key(), lambda folder: _build(folder, installed, report), needed_bytes=needed
    )


def verify_default_model() -> None:
    """Read the prepared model in full and compare it with its manifest, as `prepare_default_model` does.

    Raises:
        CorruptCheckpointError: It is missing, or a byte has changed. Removed, it is made anew.
    """
    ModelStore.from_environment().verify(gec_en.NAME, _default_key())


def write_model(
    folder: Path, base: GgufModel, adapter: Adapter | None, data: Traversable, report: Progress
) -> None:
    """Write a model into `folder`: config, tokenizer, template, limits and bfloat16 weights.

    Without an adapter the weights are the base's own, to train on.
    """
    vocabulary = base.read_vocabulary()
    # Not with its own `save`: that raises no OSError, so that a full disk would look like a defect.
    (folder / "tokenizer.json").write_text(build_tokenizer(vocabulary).to_str(pretty=True), encoding="utf-8")
    _write_json(folder / "tokenizer_config.json", tokenizer_config(vocabulary, base.shape.context))
    _write_json(folder / "config.json", _config(base.shape, vocabulary))
    _write_json(folder / "generation_config.json", _generation_config(vocabulary))
    for name in ("chat_template.jinja", "copydesk.json"):
        (folder / name).write_bytes((data / name).read_bytes())
    weights = _merged_weights(base, adapter, report)
    report("writing the model", 0.8)
    (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    report("checking the model", 0.9)


def _build(folder: Path, installed: Path | None, report: Progress) -> None:
    report("fetching the base model", 0.0)
    downloads = folder / "download"
    if installed is None:
        downloads.mkdir()
    path = source.check_base(installed or source.download_base(downloads))
    report("reading the base model", 0.3)
    data = gec_en.files()
    write_model(folder, GgufModel(path), Adapter(data), data, report)
    shutil.rmtree(downloads, ignore_errors=True)


def _merged_weights(base: GgufModel, adapter: Adapter | None, report: Progress) -> dict[str, NDArray[Any]]:
    weights = {}
    for done, (name, weight) in enumerate(base.tensors()):
        narrow = weight.astype(ml_dtypes.bfloat16)
        weights[name] = adapter.merge(name, narrow) if adapter else narrow
        report("merging the adapter", 0.4 + 0.4 * done / base.tensor_count)
    unknown = adapter.targets - weights.keys() if adapter else frozenset()
    if adapter and unknown:
        raise AdapterError(adapter.folder, f"the base model has no {min(unknown)}")
    return weights


def _config(shape: LlamaShape, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "pad_token_id": vocabulary.pad_id,
    }


def _generation_config(vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": vocabulary.eos_id,
        "pad_token_id": vocabulary.pad_id,
        "do_sample": False,
    }


@cache
def _default_key() -> str:
    """A digest of everything the default model is made from."""
    key = hashlib.sha256(f"{_RECIPE}\n{source.FILE_SHA256}\n".encode())
    for name in _DATA_FILES:
        content = (gec_en.files() / name).read_bytes()
        key.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return key.hexdigest()


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
