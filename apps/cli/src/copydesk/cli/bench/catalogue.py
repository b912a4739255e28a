"""Which settings there are, and how each is started."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from copydesk.cli.bench.contender import Contender
from copydesk.cli.bench.driven_contender import DrivenContender
from copydesk.cli.bench.pod_contender import SETTINGS as POD_SETTINGS
from copydesk.cli.bench.pod_contender import PodContender
from copydesk.cli.bench.rival_models import RivalModels
from copydesk.cli.bench.rivals import CTRANSLATE2, OPENVINO, Environments
from copydesk.cli.bench.setting import OURS, VLLM, Setting
from copydesk.cli.bench.vllm_contender import NGram, VllmContender
from copydesk.cli.bench.vllm_contender import settings as vllm_settings

BEST_NGRAM = NGram(tokens=16, longest=4, shortest=2)
LOOKUP_TOKENS = 5
_LOOKUP = "lookup"
_BATCH = 64


def all_settings(ngrams: Sequence[NGram] = ()) -> tuple[Setting, ...]:
    """Every setting that can be measured; `ngrams` replace the look-up that suits vLLM best here."""
    return (
        *POD_SETTINGS,
        *vllm_settings(tuple(ngrams) or (BEST_NGRAM,)),
        Setting(OPENVINO, "int8", _LOOKUP, f"prompt_lookup num_assistant_tokens={LOOKUP_TOKENS}"),
        Setting(OPENVINO, "int8"),
        Setting(CTRANSLATE2, "int8"),
    )


@dataclass(frozen=True, slots=True)
class Starter:
    """Starts contenders, each with a folder of its own for its log."""

    models: RivalModels
    environments: Environments
    folder: Path
    rng: random.Random

    def start(self, setting: Setting) -> Contender:
        """Start an engine in a setting; raises `StartError` or `ConversionError`."""
        folder = self.folder / setting.name.replace(" ", "-")
        match setting.engine:
            case engine if engine == OURS:
                return PodContender(setting, self.models.source, folder, self.rng)
            case engine if engine == VLLM:
                model = self.models.int8_checkpoint() if setting.arithmetic == "int8" else self.models.source
                return VllmContender(setting, self.environments.python(VLLM), model, folder, self.rng)
            case engine if engine == OPENVINO:
                lookup = LOOKUP_TOKENS if setting.drafting else 0
                arguments = (self.models.gguf(), _threads(), lookup)
                return DrivenContender(setting, self.environments.python(OPENVINO), OPENVINO, arguments, folder)
            case _:
                python = self.environments.python(CTRANSLATE2)
                arguments_ = (self.models.ctranslate2(python), "int8", _threads(), _BATCH)
                return DrivenContender(setting, python, CTRANSLATE2, arguments_, folder)


def _threads() -> int:
    return len(os.sched_getaffinity(0))
