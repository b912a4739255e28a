"""The actuator that asks Kubernetes for pods: the size is that of the scale subresource, fenced by the epoch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from copydesk.autoscaler.actuator import ActuatorError
from copydesk.autoscaler.kubernetes.fence import Reading, Step, Wish, claim, next_step, read_workload
from copydesk.autoscaler.kubernetes.objects import Scale, ScaleSpec, Workload
from copydesk.autoscaler.kubernetes.rivals import Rivals
from copydesk.autoscaler.kubernetes.target import Target
from copydesk.autoscaler.kubernetes.trouble import is_conflict, sentence
from copydesk.common.telemetry import get_logger
from copydesk.kube.api import Api
from copydesk.kube.objects import Metadata
from copydesk.kube.trouble import KubernetesError

CALL_SECONDS = 4.0
"""A call takes no longer: the next decision is due after two, and a Lease is over after six."""

# Whoever else writes, a controller that counts pods for one, seldom writes twice within milliseconds.
TRIES = 5

# The API has 32 bits for it; whatever answers otherwise is no API server.
LARGEST_SIZE = 2**31 - 1

# Under this name the server notes, in `managedFields`, who wrote.
WRITER = {"fieldManager": "copydesk-autoscaler"}

_log = get_logger(__name__)


class KubernetesActuator:
    """Sizes the workloads in `targets`, by model; `on_fenced` is called with each larger epoch that is met.

    A workload that asks for 0 pods is switched off: `size` says 0, and `resize` leaves it at that and says 0,
    until a person asks for a pod (`kubectl scale --replicas=1`).
    """

    def __init__(
        self, api: Api, targets: Mapping[str, Target], on_fenced: Callable[[int], None] | None = None
    ) -> None:
        self._api = api
        self._targets = targets
        self._on_fenced = on_fenced
        self._rivals = Rivals(api)
        self._told: dict[str, int] = {}
        self._off: set[str] = set()

    async def start(self) -> None:
        """Do nothing: the server is asked when something is to be known."""

    async def size(self, model: str) -> int:
        """Return how many pods are asked for, whoever asked; raise `ActuatorError` if nobody can tell."""
        async with self._speaking(model) as target:
            await self._rivals.of(target)
            scale = await self._api.get(target.scale_path, Scale)
            return self._tell(model, scale.spec.replicas)

    async def resize(self, model: str, replicas: int, epoch: int) -> int:
        """Ask for so many pods as the leader of `epoch`; return how many are asked for now.

        That is another number if the model is switched off, or if the wish would shrink a fleet that somebody else
        has resized since the caller was told its size: then the caller decides anew. To ask for the present size
        has a meaning, too: no leader of a smaller epoch resizes after that.

        Raises:
            ActuatorError: It was not written; `fenced`, because a leader with a larger epoch has written before.
        """
        async with self._speaking(model) as target:
            if replicas < 1:
                raise ActuatorError(model, f"{target} is not scaled to {replicas}: that is for a person to do")
            if rival := await self._rivals.of(target):
                problem = f"HorizontalPodAutoscaler {rival} scales {target} too: keep one of the two"
                raise ActuatorError(model, problem)
            wish = Wish(replicas, epoch, self._told.get(model))
            return self._tell(model, await self._settle(model, target, wish))

    async def close(self) -> None:
        """Close the connections; the fleet stays as it is."""
        await self._api.close()

    async def _settle(self, model: str, target: Target, wish: Wish) -> int:
        for _ in range(TRIES):
            try:
                return await self._attempt(model, target, wish)
            except KubernetesError as error:
                if not is_conflict(error):
                    raise
        raise ActuatorError(model, f"others have written {target} at the same time, {TRIES} times in a row")

    async def _attempt(self, model: str, target: Target, wish: Wish) -> int:
        reading = read_workload(await self._api.get(target.status_path, Workload))
        step = next_step(reading, wish)
        if step is Step.CLAIM:
            reading = await self._claim(model, target, reading, wish.epoch)
            step = next_step(reading, wish)
        if step is Step.FENCED:
            raise self._fenced(model, target, reading.epoch)
        if step is not Step.WRITE:
            return reading.replicas
        return await self._write(target, reading, wish.replicas)

    async def _claim(self, model: str, target: Target, reading: Reading, epoch: int) -> Reading:
        change = claim(reading, epoch)
        claimed = read_workload(await self._api.patch(target.status_path, change, Workload, WRITER))
        if claimed.epoch != epoch:
            raise ActuatorError(model, f"the API server drops the epoch from {target}, so nothing would be fenced")
        return claimed

    async def _write(self, target: Target, reading: Reading, replicas: int) -> int:
        metadata = Metadata(target.name, target.namespace, reading.version)
        written = await self._api.replace(target.scale_path, Scale(metadata, ScaleSpec(replicas)), Scale, WRITER)
        return written.spec.replicas

    def _fenced(self, model: str, target: Target, epoch: int) -> ActuatorError:
        if self._on_fenced is not None:
            self._on_fenced(epoch)
        return ActuatorError(model, f"a newer leader, of epoch {epoch}, has resized {target}", fenced=True)

    def _tell(self, model: str, size: int) -> int:
        if not 0 <= size <= LARGEST_SIZE:
            raise ActuatorError(
                model, f"{self._targets[model]} cannot ask for {size} pods, as the API server says"
            )
        if size == 0 and model not in self._off:
            _log.warning("model_switched_off", model=model, target=str(self._targets[model]))
        (self._off.add if size == 0 else self._off.discard)(model)
        self._told[model] = size
        return size

    @asynccontextmanager
    async def _speaking(self, model: str) -> AsyncIterator[Target]:
        target = self._targets.get(model)
        if target is None:
            raise ActuatorError(model, "it is not said which workload runs this model")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                yield target
        except TimeoutError as error:
            raise ActuatorError(model, f"{target}: no answer of the API server in {CALL_SECONDS:.0f} s") from error
        except KubernetesError as error:
            raise ActuatorError(model, sentence(error, target)) from error
