"""From a model directory to a quantised one: tensor by tensor, whole or not at all, always the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from copydesk.inference.checkpoint.manifest import (
    MANIFEST,
    QUANTISATION_REPORT,
    Manifest,
    check_contents,
    describe,
    read_digest,
    write_manifest,
)
from copydesk.inference.engine.native.errors import UnreadableModelError
from copydesk.inference.engine.native.files import INDEX, leads_outside
from copydesk.inference.quantisation.arithmetic import quantise_weight
from copydesk.inference.quantisation.modules import LinearModule, linear_modules
from copydesk.inference.quantisation.output import appearing, check_output
from copydesk.inference.quantisation.plan import PrecisionPlan, Resolved, resolve
from copydesk.inference.quantisation.report import Measured, ModuleReport, QuantisationReport, write_report
from copydesk.inference.quantisation.scheme import Quantisation, Scheme, WeightScale, quantisation_config
from copydesk.inference.quantisation.shards import Entry, Shard, ShardFiles, index_name, index_of, lay_out
from copydesk.inference.quantisation.source import Source, check_unchanged, open_source, stamps

Progress = Callable[[str, float], None]
"""Called with what is being done, and which share of the whole is done, 0 to 1."""

SHARD_BYTES = 4 << 30
"""So large that small models stay in one file, and no file is a burden to copy."""

_RECIPE = "quantisation 1"  # raise it when the same plan makes other bytes
_CHUNK_BYTES = 1 << 20
_STORED_NAME = {Scheme.FP8: "F8_E4M3", Scheme.INT8: "I8"}
_COPIED = ("*.json", "*.jinja", "*.model", "*.txt", "LICENSE*", "NOTICE*")
_NOT_COPIED = {"config.json", INDEX, MANIFEST, QUANTISATION_REPORT, "adapter_config.json", "training_args.json"}


@dataclass(frozen=True, slots=True)
class _Work:
    """A source and what is to be made of it: its files, and which modules they have quantised, by weight."""

    source: Source
    resolved: Resolved
    shards: list[Shard]
    quantised: dict[str, LinearModule]

    @property
    def quantisation(self) -> Quantisation:
        return self.resolved.quantisation


def quantise_directory(
    source: Path,
    out: Path,
    plan: PrecisionPlan,
    progress: Progress = lambda _stage, _share: None,
    *,
    measure: bool = True,
    shard_bytes: int = SHARD_BYTES,
) -> QuantisationReport:
    """Write the model of `source` as a compressed-tensors checkpoint to `out`, and say what it lost.

    Without `measure`, nothing is run through the models, and no report is put beside the weights. Files of weights
    are at most `shard_bytes` long, but for a tensor that is longer.

    Raises:
        QuantisationError: the source, the plan or the output does not allow it; nothing is left at `out`.
        ModelError: the source is damaged, or of a kind that is not served.
        CorruptCheckpointError: a file is not what the source's own manifest says.
        CorrectionSetupError: with `measure`, the source does not say how to ask its model.
    """
    check_output(out, source)
    before = stamps(source)
    work = _prepare(open_source(source), plan, shard_bytes)
    if measure:
        from copydesk.inference.quantisation.judging.texts import read_questions

        questions = read_questions(source)
    needed = sum(shard.size for shard in work.shards) + _copied_bytes(source)
    progress("checking the original", 0.0)
    source_digest = _checked_digest(source)
    converting = _part(progress, 0.02, 0.2 if measure else 0.98)
    with appearing(out, needed) as scratch:
        _write_weights(work, scratch, converting)
        _write_files(work, scratch)
        manifest = describe(scratch, _key(source_digest, work.quantisation))
        write_manifest(scratch, manifest)
        measured: Measured | None = None
        if measure:
            from copydesk.inference.quantisation.judging.sweep import judge

            measured = judge(work.source, work.quantisation, questions, _part(progress, 0.2, 0.98))
        check_unchanged(source, before)
        report = _report(work, source_digest, manifest, measured)
        if measured is not None:
            write_report(scratch, report)
    progress("done", 1.0)
    return report


def _prepare(source: Source, plan: PrecisionPlan, shard_bytes: int) -> _Work:
    modules = linear_modules(source.config)
    resolved = resolve(plan, modules)
    quantised = {module.weight: module for module in modules if module.name not in resolved.kept}
    units = list(_units(source, resolved.quantisation, quantised))
    shards = lay_out(units, shard_bytes, always_split=source.sharded)
    return _Work(source, resolved, shards, quantised)


def _units(
    source: Source, quantisation: Quantisation, quantised: dict[str, LinearModule]
) -> Iterator[tuple[Entry, ...]]:
    for name, tensor in _in_order(source):
        module = quantised.get(name)
        if module is None:
            yield (Entry(name, tensor.dtype, tensor.shape),)
            continue
        per_channel = quantisation.weight_scale is WeightScale.CHANNEL
        scales = (module.rows, 1) if per_channel else (1,)
        stored = _STORED_NAME[quantisation.scheme]
        yield Entry(name, stored, tensor.shape), Entry(module.scale, "BF16", scales)


def _in_order(source: Source) -> Iterable[tuple[str, Any]]:
    """Tensors by the number of their layer, whatever order the source has them in; what is in no layer, last."""

    def place(item: tuple[str, Any]) -> tuple[int, str]:
        parts = item[0].split(".")
        return (int(parts[2]) if parts[1] == "layers" else source.config.layers), item[0]

    return sorted(source.tensors.items(), key=place)


def _write_weights(work: _Work, folder: Path, progress: Progress) -> None:
    total = sum(tensor.size for tensor in work.source.tensors.values())
    done = 0
    with ShardFiles(folder, work.shards) as files:
        for name, tensor in _in_order(work.source):
            progress("quantising", done / total)
            module = work.quantised.get(name)
            if module is None:
                end = 0
                for chunk in tensor.chunks():
                    end = files.put(name, chunk, end)
            else:
                quantisation = work.quantisation
                stored, scale = quantise_weight(tensor.floats(), quantisation.scheme, quantisation.weight_scale)
                files.put(name, stored)
                files.put(module.scale, scale)
            done += tensor.size


def _write_files(work: _Work, folder: Path) -> None:
    index = index_name(work.shards)
    if index is not None:
        _write_json(folder / index, index_of(work.shards))
    config = {**work.source.config_json, "quantization_config": quantisation_config(work.quantisation)}
    _write_json(folder / "config.json", config)
    for path in _copied_files(work.source.directory):
        _copy(path, folder / path.name)


def _copy(path: Path, target: Path) -> None:
    try:
        file = path.open("rb")
    except OSError as error:
        raise UnreadableModelError(path, error.strerror or str(error)) from error
    with file, target.open("xb") as written:
        while content := _read(path, file):
            written.write(content)


def _read(path: Path, file: BinaryIO) -> bytes:
    try:
        return file.read(_CHUNK_BYTES)
    except OSError as error:
        raise UnreadableModelError(path, error.strerror or str(error)) from error


def _copied_files(directory: Path) -> list[Path]:
    """Tokenizer, template, settings and licence; never weights in any other format, and never code.

    Nor what a link leads to outside of the model: a stranger's model would carry off a file of who quantises it.
    """
    found = {path for pattern in _COPIED for path in directory.glob(pattern) if path.is_file()}
    copied = sorted(path for path in found if path.name not in _NOT_COPIED and not path.name.startswith("."))
    for path in copied:
        if not path.name.isprintable():  # neither a manifest nor a digest can name bytes that are no text
            raise UnreadableModelError(path, "its name has characters that cannot be printed")
        if leads_outside(directory, path):
            raise UnreadableModelError(path, "is a link to a file outside of the model's directory")
    return copied


def _copied_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in _copied_files(directory))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _checked_digest(directory: Path) -> str:
    """The digest of the source; one that has a manifest must be what that says."""
    if (directory / MANIFEST).is_file():
        return check_contents(directory).digest
    return read_digest(directory)


def _key(source_digest: str, quantisation: Quantisation) -> str:
    how = json.dumps(quantisation_config(quantisation), sort_keys=True)
    return hashlib.sha256(f"{_RECIPE}\n{source_digest}\n{how}\n".encode()).hexdigest()


def _report(work: _Work, source_digest: str, manifest: Manifest, measured: Measured | None) -> QuantisationReport:
    modules = linear_modules(work.source.config)
    kept = work.resolved.kept
    return QuantisationReport(
        scheme=work.quantisation.scheme.value,
        weight_scale=work.quantisation.weight_scale.value,
        source_digest=source_digest,
        digest=manifest.digest,
        bytes_before=sum(tensor.size for tensor in work.source.tensors.values()),
        bytes_after=sum(shard.size - len(shard.header) for shard in work.shards),
        quantised_modules=len(modules) - len(kept),
        kept_modules=len(kept),
        evaluation=measured.evaluation if measured else None,
        agreement=measured.agreement if measured else (),
        modules=tuple(
            ModuleReport(
                name=module.name,
                layer=module.layer,
                kind=module.kind,
                shape=(module.rows, module.columns),
                kept=kept.get(module.name),
                weight=measured.weight[module.name] if measured else None,
                output=measured.output[module.name] if measured else None,
            )
            for module in modules
        ),
    )


def _part(progress: Progress, first: float, last: float) -> Progress:
    """Progress through a part of the whole."""
    return partial(_scaled, progress, first, last)


def _scaled(progress: Progress, first: float, last: float, stage: str, share: float) -> None:
    progress(stage, first + (last - first) * share)
