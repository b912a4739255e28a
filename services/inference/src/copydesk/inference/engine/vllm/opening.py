"""From a model directory to an engine over vLLM."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from copydesk.common.errors import CopydeskError
from copydesk.inference.engine.vllm.engine import VllmEngine
from copydesk.inference.engine.vllm.guard import watch_over
from copydesk.inference.engine.vllm.options import (
    UnservedOptionError,
    VllmOptions,
    check_options,
    engine_arguments,
    read_config,
)


class RefusedModelError(CopydeskError):
    """vLLM does not serve the model as it is to be served; `reason` is in vLLM's words."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"vLLM refuses the model: {reason}")


def open_engine(directory: Path, options: VllmOptions) -> VllmEngine:
    """Start vLLM with the model in `directory`, which takes minutes; its processes end with this one.

    Raises:
        UnreadableConfigError: there is no model in the directory.
        UnservedOptionError: vLLM, or this build of it, cannot do what the options say.
        RefusedModelError: vLLM says that it does not serve this model.
    """
    config = read_config(directory)
    check_options(options, config)
    if os.getpgrp() == os.getpid():  # as the supervisor starts it
        watch_over()
    logging.getLogger("vllm").setLevel(max(logging.WARNING, logging.getLogger().level))
    from copydesk.inference.engine.vllm.async_llm import AsyncLLMClient

    _require_device(options)
    try:
        client = AsyncLLMClient(engine_arguments(directory, options, config))
    except (ValueError, NotImplementedError) as error:
        raise RefusedModelError(str(error)) from error
    return VllmEngine(
        client, context=options.context, slots=options.slots, queue=options.queue, drafts=options.draft
    )


def _require_device(options: VllmOptions) -> None:
    from vllm.platforms import current_platform

    built_for = str(current_platform.device_type)
    if built_for != options.device.partition(":")[0]:
        raise UnservedOptionError("device", options.device, f"{built_for}, for which this vLLM was built")
