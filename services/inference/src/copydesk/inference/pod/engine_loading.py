"""From settings to an engine, with every failure put in terms of the setting to change."""

from __future__ import annotations

from copydesk.inference.checkpoint.errors import CheckpointError
from copydesk.inference.checkpoint.manifest import read_digest
from copydesk.inference.engine import Engine, LoopEngine
from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.settings import Draft, EngineKind, InferenceSettings

_SETTINGS = {"precision": "DTYPE", "kernels": "COPYDESK_INT8_KERNELS"}
"""The settings that are called otherwise than the engine's options."""


def load_any_engine(settings: InferenceSettings) -> tuple[Engine | LoopEngine, str]:
    """Load the engine that the settings describe, whosever it is; return it and the digest of its weights.

    Takes seconds to minutes. Raises `CannotStartError`.
    """
    if settings.engine is EngineKind.NATIVE:
        return load_engine(settings)
    from copydesk.inference.pod.vllm_loading import load_vllm

    return load_vllm(settings)


def load_engine(settings: InferenceSettings) -> tuple[Engine, str]:
    """Load the native engine; return it and the digest of its weights. Raises `CannotStartError`."""
    # Here, so that what only reads this module's name does not pay for torch.
    from copydesk.inference.engine.native import (
        Core,
        InvalidOptionError,
        ModelError,
        NativeOptions,
        Precision,
        open_engine,
    )

    options = NativeOptions(
        precision=Precision(settings.dtype.value),
        slots=settings.slots,
        context=settings.context,
        queue=settings.queue,
        cache_tokens=settings.cache_tokens,
        draft_tokens=settings.draft_tokens if settings.draft is Draft.AUTO else 0,
        threads=settings.thread_count(),
        device=settings.device,
        core=Core(settings.core.value),
        asynchronous=settings.asynchronous,
        graphs=settings.graphs if settings.device.startswith("cuda") else 0,
    )
    digest = checked_digest(settings)
    try:
        return open_engine(settings.model_dir, options), digest
    except InvalidOptionError as error:
        setting = _SETTINGS.get(error.option, error.option.upper())
        raise CannotStartError(setting, f"{error.value!r}; expected {error.expected}") from error
    except (ModelError, OSError) as error:
        raise CannotStartError("MODEL_DIR", str(error)) from error
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        size = f"{settings.slots} slots of {settings.context} tokens"
        raise CannotStartError("SLOTS", f"there is no memory for the model and {size}") from error


def checked_digest(settings: InferenceSettings) -> str:
    """Return the digest of the model's directory; raises `CannotStartError` if it must be another, or is none."""
    try:
        digest = read_digest(settings.model_dir)
    except (CheckpointError, OSError) as error:
        raise CannotStartError("MODEL_DIR", str(error)) from error
    if settings.model_digest and digest != settings.model_digest:
        whose = f"the profile {settings.profile} is" if settings.profile else "MODEL_DIGEST is"
        reason = f"{settings.model_dir} has the digest {digest}, and {whose} for {settings.model_digest}"
        raise CannotStartError("MODEL_DIR", reason)
    return digest


def is_out_of_memory(error: Exception) -> bool:
    """Say whether memory was wanting: Python and numpy have a type for it, torch on a CPU has only words."""
    return isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "out of memory" in str(error)
