"""The models of a check: directories in both precisions, and what to ask them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from copydesk.inference.gpu_check.requirements import MODEL, complaint, missing
from copydesk.inference.gpu_check.shapes import Shape, write_counting
from copydesk.inference.gpu_check.workload import Asked, corrections, counted_corrections, random_prompts


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A model in bfloat16 and in FP8. With `sentences` it is a real one, which corrects those."""

    name: str
    bf16: Path
    fp8: Path
    vocabulary: int
    sentences: Path | None = None

    def random_prompts(self, count: int, tokens: int) -> list[Asked]:
        """So many tokens in, as many out."""
        return random_prompts(self.vocabulary, count, tokens, counting=self.sentences is None)

    def corrections(self, count: int, tokens: int, context: int) -> list[Asked]:
        """Sentences to correct, with themselves to draft from; where they are made up, of so many tokens."""
        if self.sentences is None:
            return counted_corrections(self.vocabulary, count, tokens)
        if lacking := missing(MODEL):
            raise RuntimeError(complaint(lacking, "the correction workload"))
        return corrections(self.bf16, self.sentences, count, context)


def made_up(shape: Shape, work: Path, device: torch.device) -> CheckedModel:
    """A counting model, written unless it is there already."""
    bf16, fp8 = work / f"{shape.name}-bf16", work / f"{shape.name}-fp8"
    for directory, in_fp8 in ((bf16, False), (fp8, True)):
        if not (directory / "tokenizer.json").is_file():
            write_counting(directory, shape, fp8=in_fp8, device=device)
    return CheckedModel(f"{shape.name} (made up)", bf16, fp8, shape.vocabulary)


def real(directory: Path, work: Path, sentences: Path) -> CheckedModel:
    """A model directory, quantised as `copydesk model quantize` does unless that has been done already."""
    from copydesk.inference.quantisation.conversion import quantise_directory
    from copydesk.inference.quantisation.plan import PrecisionPlan
    from copydesk.inference.quantisation.scheme import Scheme

    fp8 = work / "real-fp8"
    if not fp8.exists():
        quantise_directory(directory, fp8, PrecisionPlan(Scheme.FP8, False, ()), measure=False)
    vocabulary = json.loads((directory / "config.json").read_text())["vocab_size"]
    return CheckedModel(directory.name, directory, fp8, vocabulary, sentences)
