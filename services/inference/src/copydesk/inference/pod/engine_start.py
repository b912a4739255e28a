"""By which interpreter a pod's engine processes are started, and what they find in their environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.settings import EngineKind, InferenceSettings, LogLevel

_BRIDGE, _SCRATCH = "bridge", "scratch"


@dataclass(frozen=True, slots=True)
class EngineStart:
    """An interpreter, and the variables by which it finds what it needs; `vllm` is where vLLM is installed."""

    python: str = sys.executable
    search: Mapping[str, str] = field(default_factory=dict)
    vllm: Path | None = None

    def variables(self, settings: InferenceSettings, index: int, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return what an engine process needs beside its settings, and beside what it inherits."""
        if self.vllm is None:
            return {}
        from copydesk.inference.engine.vllm.environment import vllm_variables

        return {
            **self.search,
            **vllm_variables(
                inherited,
                device=settings.engine_device(index),
                threads=settings.engine_threads(index),
                cores=sorted(os.sched_getaffinity(0)),
                prefix=self.vllm,
                verbose=settings.log_level is LogLevel.DEBUG,
            ),
        }


def engine_start(settings: InferenceSettings, runtime: Path, inherited: Mapping[str, str]) -> EngineStart:
    """Find out how engines are started, and that they can be; for vLLM's, folders are made in `runtime`.

    With vLLM it asks another interpreter, and so takes a moment. Raises `CannotStartError`.
    """
    if settings.engine is EngineKind.NATIVE:
        return EngineStart()
    from copydesk.inference.engine.vllm.environment import (
        UnfitInterpreterError,
        make_bridge,
        probe,
        require_fit,
        search_path,
    )
    from copydesk.inference.pod.vllm_loading import check_vllm

    check_vllm(settings)
    python = settings.vllm_python or sys.executable
    search = search_path(inherited, make_bridge(runtime / _BRIDGE)) if settings.vllm_python else {}
    scratch = runtime / _SCRATCH
    scratch.mkdir()
    # For sockets and files that vLLM leaves behind, and that go with the pod here.
    search["TMPDIR"] = str(scratch)
    try:
        found = probe(python, {**inherited, **search})
        require_fit(python, found)
    except UnfitInterpreterError as error:
        raise CannotStartError("VLLM_PYTHON", str(error)) from error
    return EngineStart(python, search, found.prefix)
