"""The client that is vLLM's: the one module that imports it, and so the one that its own interpreter must run."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.exceptions import VLLMClientError
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import PrometheusStatLogger

from copydesk.inference.engine.vllm.client import Acceptance, CoreLostError, Ended, Part


class AsyncLLMClient:
    """A `Client` over an AsyncLLM that is made here; that takes minutes, and starts processes.

    Raises `ValueError` for arguments, or a model, that vLLM does not serve.
    """

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._pulse = _Pulse()
        loggers = [self._pulse.factory]
        try:
            self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), stat_loggers=loggers)
        except VLLMClientError as error:
            raise ValueError(str(error)) from error
        self.vocabulary: int = self._llm.model_config.get_vocab_size()

    @property
    def dead(self) -> bool:
        """Whether the engine core is gone."""
        return bool(self._llm.errored)

    def on_step(self, heard: Callable[[], None]) -> None:
        """Have `heard` called after each step."""
        self._pulse.heard = heard

    async def generate(
        self, request_id: str, prompt: list[int], parameters: dict[str, Any], *, stream: bool
    ) -> AsyncIterator[Part]:
        """Answer one request."""
        kind = RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY
        sampling = SamplingParams(**parameters, output_kind=kind)
        try:
            async for output in self._llm.generate(tokens_input(prompt), sampling, request_id):
                yield _part(output)
        except EngineDeadError as error:
            raise CoreLostError from error

    async def abort(self, request_id: str) -> None:
        """End a request."""
        with contextlib.suppress(EngineDeadError):  # which the request itself will hear of
            await self._llm.abort(request_id)

    def close(self, timeout: float) -> None:
        """End vLLM's processes."""
        self._llm.shutdown(timeout=timeout)


def _part(output: Any) -> Part:
    completion = output.outputs[0]
    reason = completion.finish_reason
    ended = None if reason is None else Ended(reason) if reason in tuple(Ended) else Ended.ABORT
    found = completion.spec_decode_metrics
    acceptance = Acceptance()
    if found is not None:
        accepted = sum(right * times for right, times in enumerate(found.histogram))
        acceptance = Acceptance(sum(found.histogram), found.num_draft_tokens, accepted)
    stop_id = completion.stop_reason if isinstance(completion.stop_reason, int) else None
    return Part(list(completion.token_ids), ended, stop_id, acceptance)


class _Pulse:
    """Hears of every step: vLLM tells its statistics after each, also of those that only read prompts."""

    def __init__(self) -> None:
        self.heard: Callable[[], None] = lambda: None

    @property
    def factory(self) -> type:
        """The class of which vLLM makes one.

        vLLM adds metrics of its own for Prometheus unless one of the loggers is a logger for Prometheus, and this
        one says that it is: a pod has the metrics that it has with any engine.
        """
        pulse = self

        class StepLogger(PrometheusStatLogger):  # type: ignore[misc]
            def __init__(self, *_: object, **__: object) -> None: ...

            def record(self, *_: object, **__: object) -> None:
                pulse.heard()

            def log_engine_initialized(self) -> None: ...

            def log(self) -> None: ...

            def record_sleep_state(self, *_: object, **__: object) -> None: ...

        return StepLogger
