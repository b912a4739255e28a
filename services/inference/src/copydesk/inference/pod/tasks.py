"""What a worker is asked to do, and who does it."""

from __future__ import annotations

import msgspec

from copydesk.common.rpc import Fault, InboundCall, Status
from copydesk.common.tasks import CorrectSentence, Task
from copydesk.inference.pod.completions import Completions
from copydesk.inference.pod.corrections import Corrections
from copydesk.inference.pod.metrics import WorkerMetrics
from copydesk.inference.pod.task_call import TaskCall


class Tasks:
    """Hands each RPC call to those who deal with its kind; lives on the event loop."""

    def __init__(self, corrections: Corrections, completions: Completions, metrics: WorkerMetrics) -> None:
        self._corrections = corrections
        self._completions = completions
        self._metrics = metrics
        self._decode: msgspec.msgpack.Decoder[Task] = msgspec.msgpack.Decoder(Task)

    def handle(self, inbound: InboundCall) -> None:
        """Take one call; the handler of the worker's RPC server."""
        call = TaskCall(inbound, self._metrics)
        try:
            task = self._decode.decode(inbound.payload)
        except msgspec.DecodeError as error:
            call.fail(Status.INVALID, Fault("bad_payload", str(error)))
            return
        if isinstance(task, CorrectSentence):
            self._corrections.take(call, task)
        else:
            self._completions.take(call, task)
