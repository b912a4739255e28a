"""The model profile that onboarding ends with, from what its stages found."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from copydesk.cli.onboarding.precision import Plan
from copydesk.cli.onboarding.search import Made
from copydesk.cli.onboarding.stages import Checked, Onboarded
from copydesk.cli.onboarding.tuning import Setting
from copydesk.common.profile import (
    CapacityPart,
    EnginePart,
    ModelPart,
    PrecisionPart,
    Profile,
    PromptPart,
    QualityPart,
)
from copydesk.evaluation import EvaluationResult
from copydesk.loadtest.certificate import read_certificate
from copydesk.loadtest.profiled import capacity_part

ITSELF = "original"
"""The verdict of a model that serves as it was trained: there is nothing to hold it against."""


def bare_profile(
    name: str,
    plan: Plan,
    made: Made,
    setting: Setting,
    checked: Checked,
    beside: Path,
    now: datetime.datetime,
    tool: str,
    device: str,
) -> Profile:
    """Return what is known before anything is measured, for a file `beside`: enough to run the model."""
    return Profile(
        model=ModelPart(
            name=name,
            directory=_from(beside, Path(made.directory)),
            digest=made.digest,
            architecture=checked.architecture,
            parameters=checked.parameters,
            bytes=made.bytes,
        ),
        prompt=PromptPart(template=checked.template, digest=checked.template_digest),
        precision=PrecisionPart(scheme=plan.scheme, per_tensor=plan.per_tensor, keep=plan.keep, dtype=plan.dtype),
        engine=EnginePart(
            device=None if device == "cpu" else device,
            slots=setting.slots,
            threads=setting.threads,
            draft=setting.draft,
            draft_tokens=setting.draft_tokens,
        ),
        created_at=now,
        tool=tool,
    )


def whole_profile(
    name: str, onboarded: Onboarded, beside: Path, now: datetime.datetime, tool: str, device: str
) -> Profile:
    """Return all that was found out, for a file `beside`.

    Raises:
        CertificateError: The certificate cannot be read.
    """
    serving = onboarded.serving
    bare = bare_profile(
        name, serving.plan, serving.made, serving.setting, onboarded.checked, beside, now, tool, device
    )
    return Profile(
        model=bare.model,
        prompt=bare.prompt,
        precision=bare.precision,
        engine=bare.engine,
        capacity=_capacity(onboarded, beside),
        cold_start_seconds=round(max(onboarded.cold_start.ninth, 0.1), 1),
        quality=_quality(onboarded.quality),
        created_at=now,
        tool=tool,
    )


def _capacity(onboarded: Onboarded, beside: Path) -> CapacityPart | None:
    if onboarded.certified is None:
        return None
    file = Path(onboarded.certified.file)
    return capacity_part(read_certificate(file), file, beside)


def _quality(result: EvaluationResult) -> QualityPart:
    return QualityPart(
        verdict=ITSELF if result.verdict is None else str(result.verdict),
        data=result.data,
        gleu=round(result.gleu, 4),
        gleu_reference=None if result.gleu_reference is None else round(result.gleu_reference, 4),
        exact_match=_rounded(result.exact_match),
        over_correction=_rounded(result.over_correction),
        agreement=_rounded(result.agreement),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _from(beside: Path, directory: Path) -> str:
    """Name a directory relative to the profile where it lies below it, so that both can be moved together."""
    folder = beside.absolute().parent
    directory = directory.absolute()
    return os.path.relpath(directory, folder) if directory.is_relative_to(folder) else str(directory)
