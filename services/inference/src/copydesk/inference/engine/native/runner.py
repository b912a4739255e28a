"""Runs steps on one of torch's devices: owns the weights and the cache, decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import torch

from copydesk.inference.engine.native.cache import SlotCache
from copydesk.inference.engine.native.config import ModelConfig
from copydesk.inference.engine.native.decoder import Decoder
from copydesk.inference.engine.native.flat_layout import FlatLayout
from copydesk.inference.engine.native.layout import Layout, Run, StepResult, lay_out
from copydesk.inference.engine.native.rope_table import rope_table
from copydesk.inference.engine.native.step import Step, build_step, view_step
from copydesk.inference.engine.native.weights import load_weights


class TorchRunner:
    """A decoder with `slots` sequences of up to `context` tokens each.

    `run` and `logits` lay a step out in Python; `flat_logits` is for who has it done (`torch_device`), `states`
    and `scores` for who makes the step's tensors (`cuda`). With `spare`, the cache has a slot more, which no
    request gets: `spare_row` is in it.
    """

    def __init__(
        self,
        directory: Path,
        config: ModelConfig,
        *,
        slots: int,
        context: int,
        dtype: torch.dtype,
        device: torch.device,
        spare: bool = False,
        fp8: bool = False,
    ) -> None:
        self.context = context
        self.device = device
        self.query_group = config.group
        self.spare_row = slots * context
        self._config = config
        with torch.inference_mode():
            self._decoder = Decoder(config, load_weights(directory, config, dtype, device, fp8=fp8))
            self._cache = SlotCache(config, slots + spare, context, dtype, device)
            self.rope = rope_table(config.rope, config.head_dim, context, dtype, device)

    def run(self, runs: Sequence[Run]) -> StepResult:
        """Run one step; find the likeliest next token after each position that is sampled, or the scores there."""
        layout = lay_out(runs, self.context)
        with torch.inference_mode():
            logits = self._logits(layout)
            chosen = likeliest(logits).to(torch.int32).numpy(force=True)
            scored = [place for run, place in _places(layout) if run.scores]
            scores = logits[[row for rows in scored for row in rows]].float().numpy(force=True)
        return StepResult.split(layout.runs, chosen, scores)

    def logits(self, runs: Sequence[Run]) -> dict[int, torch.Tensor]:
        """The same, but return the scores [samples, vocabulary] instead: to judge one engine by another."""
        layout = lay_out(runs, self.context)
        sampling = [run for run in layout.runs if run.samples]
        with torch.inference_mode():
            rows = torch.split(self._logits(layout), [run.samples for run in sampling])
        return {run.slot: scores for run, scores in zip(sampling, rows, strict=True)}

    def flat_logits(self, layout: FlatLayout, numbers: torch.Tensor) -> torch.Tensor:
        """Run a step that was laid out elsewhere, with its numbers on `device`; return [samples, vocabulary]."""
        return self.scores(self.flat_states(layout, numbers))

    def flat_states(self, layout: FlatLayout, numbers: torch.Tensor) -> torch.Tensor:
        """The same, up to what `scores` takes."""
        return self.states(view_step(layout, numbers, self.rope, self._config.group))

    def states(self, step: Step) -> torch.Tensor:
        """Run a step whose tensors are made; return [samples, hidden]."""
        return self._decoder.states(step, self._cache)

    def scores(self, states: torch.Tensor) -> torch.Tensor:
        """Return the scores [samples, vocabulary] of states."""
        return self._decoder.scores(states)

    def no_states(self, samples: int) -> torch.Tensor:
        """Return room for the states of so many samples."""
        return torch.zeros(samples, self._config.hidden, dtype=self.rope.cos.dtype, device=self.device)

    def _logits(self, layout: Layout) -> torch.Tensor:
        step = build_step(layout, self._cache, self.rope, self._config.group)
        return self._decoder.logits(step, self._cache)


def likeliest(scores: torch.Tensor) -> torch.Tensor:
    """Return the index of the first of the largest scores of each row.

    On a processor max() finds it several times faster than argmax(); elsewhere it would write the scores as well.
    """
    return scores.max(-1).indices if scores.device.type == "cpu" else scores.argmax(-1)


def _places(layout: Layout) -> list[tuple[Run, range]]:
    """Which of the sampled rows are whose."""
    ends = accumulate(run.samples for run in layout.runs)
    return [(run, range(end - run.samples, end)) for run, end in zip(layout.runs, ends, strict=True)]
