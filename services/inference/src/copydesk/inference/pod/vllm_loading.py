"""The vLLM engine by the pod's settings, with every failure put in terms of the setting to change."""

from __future__ import annotations

from dataclasses import replace

from copydesk.inference.engine.vllm.engine import VllmEngine
from copydesk.inference.engine.vllm.opening import RefusedModelError, open_engine
from copydesk.inference.engine.vllm.options import (
    UnreadableConfigError,
    UnservedOptionError,
    VllmOptions,
    check_options,
    read_config,
)
from copydesk.inference.pod.engine_loading import checked_digest
from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.settings import Core, Draft, InferenceSettings


def load_vllm(settings: InferenceSettings) -> tuple[VllmEngine, str]:
    """Start vLLM as the settings describe; return the engine and the digest of its weights.

    Takes minutes. Raises `CannotStartError`.
    """
    digest = checked_digest(settings)
    try:
        return open_engine(settings.model_dir, vllm_options(settings)), digest
    except UnservedOptionError as error:
        raise _unserved(error) from error
    except (RefusedModelError, UnreadableConfigError, OSError) as error:
        raise CannotStartError("MODEL_DIR", str(error)) from error


def check_vllm(settings: InferenceSettings) -> None:
    """Refuse what can be refused before anything is started; raises `CannotStartError`."""
    try:
        config = read_config(settings.model_dir)
        for index in range(settings.engines):
            check_options(replace(vllm_options(settings), device=settings.engine_device(index)), config)
    except UnservedOptionError as error:
        raise _unserved(error) from error
    except UnreadableConfigError as error:
        raise CannotStartError("MODEL_DIR", str(error)) from error


def vllm_options(settings: InferenceSettings) -> VllmOptions:
    """Return the options that the settings mean; raises `CannotStartError`."""
    if settings.core is not Core.AUTO:
        reason = f"{settings.core.value!r}; expected auto with ENGINE=vllm, which schedules by itself"
        raise CannotStartError("CORE", reason)
    if settings.graphs != InferenceSettings.model_fields["graphs"].default:
        reason = (
            f"{settings.graphs}; expected none with ENGINE=vllm, which captures none with VLLM_EAGER=true only"
        )
        raise CannotStartError("GRAPHS", reason)
    return VllmOptions(
        dtype=settings.dtype.value,
        slots=settings.slots,
        context=settings.context,
        queue=settings.queue,
        cache_tokens=settings.cache_tokens,
        draft=settings.draft is Draft.AUTO,
        asynchronous=settings.asynchronous,
        device=settings.device,
        gpu_memory=settings.vllm_gpu_memory,
        eager=settings.vllm_eager,
    )


def _unserved(error: UnservedOptionError) -> CannotStartError:
    return CannotStartError(error.option.upper(), f"{error.value!r}; expected {error.expected}")
