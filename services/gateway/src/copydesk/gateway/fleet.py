"""The pods that discovery names, and the choice among them.

Membership comes from discovery's snapshots alone. When none come, because NATS or discovery is gone, the last one
stays in force for as long as it takes: running gateways keep serving with running pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from copydesk.common.messages import Endpoint, EndpointsSnapshot
from copydesk.common.telemetry import get_logger
from copydesk.gateway.pod import Dialling, Pod
from copydesk.routing import Held, Verdict, choose, hear, judge

RETIRE_SECONDS = 60.0
"""How long a pod that left the membership may still answer what it has: the default deadline."""

_log = get_logger(__name__)


class Fleet:
    """Every pod of one model, the eligible ones among them, and those who wait for one."""

    def __init__(self, dialling: Dialling) -> None:
        self.pods: dict[str, Pod] = {}
        self.eligible: list[Pod] = []
        self.digest = ""
        self._dialling = dialling
        self._loop = asyncio.get_running_loop()
        self._held: Held | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._waiters: dict[object, Callable[[], None]] = {}

    @property
    def model(self) -> str:
        """The name of the model that these pods serve."""
        return self._dialling.model

    def apply(self, snapshot: EndpointsSnapshot) -> None:
        """Take over a snapshot, unless a newer one is in force or it is for another model.

        An empty one is not taken over: pods that are truly gone have lost their connections, and if they have not,
        then discovery is mistaken (envoyproxy/envoy#13072).
        """
        if snapshot.model != self.model:
            return
        now = self._loop.time()
        verdict = judge(self._held, snapshot.epoch, snapshot.generation, now)
        self._held = hear(self._held, snapshot.epoch, snapshot.generation, now)
        if verdict is not Verdict.APPLY:
            return
        if not snapshot.endpoints and self.pods:
            _log.warning("empty_snapshot_ignored", epoch=snapshot.epoch, generation=snapshot.generation)
            return
        self._replace({endpoint.id: endpoint for endpoint in snapshot.endpoints})

    def pick(self, excluded: Collection[str] = ()) -> Pod | None:
        """Choose an eligible pod whose id is not excluded; None if there is none."""
        return choose(self.eligible, now=self._loop.time(), random=self._dialling.random, excluded=excluded)

    def wait(self, callback: Callable[[], None]) -> object:
        """Have `callback` called once when the set of eligible pods has grown; returns a key for `forget`."""
        key = object()
        self._waiters[key] = callback
        return key

    def forget(self, key: object) -> None:
        """Withdraw a `wait`."""
        self._waiters.pop(key, None)

    async def close(self) -> None:
        """Disconnect from every pod at once."""
        for pod in tuple(self.pods.values()):
            self._retire(pod, 0.0)
        self._refresh()
        if self._retiring:
            await asyncio.wait(self._retiring)

    def _replace(self, wanted: dict[str, Endpoint]) -> None:
        for pod in tuple(self.pods.values()):
            endpoint = wanted.get(pod.id)
            if endpoint is None or _address(endpoint) != _address(pod.endpoint):
                self._retire(pod, RETIRE_SECONDS)
        for endpoint in wanted.values():
            known = self.pods.get(endpoint.id)
            if known is not None:
                known.update(endpoint)
            else:
                self.pods[endpoint.id] = Pod(endpoint, self._dialling, self._on_change)
        self._refresh()
        self._log_membership()

    def _retire(self, pod: Pod, timeout: float) -> None:
        del self.pods[pod.id]
        pod.retired = True
        task = self._loop.create_task(pod.retire(timeout))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _on_change(self, _pod: Pod) -> None:
        before = len(self.eligible)
        self._refresh()
        if len(self.eligible) != before:
            self._log_membership()

    def _log_membership(self) -> None:
        _log.info("membership", pods=len(self.pods), eligible=len(self.eligible))

    def _refresh(self) -> None:
        before = len(self.eligible)
        self.eligible = [pod for pod in self.pods.values() if pod.eligible]
        for pod in self.eligible:
            if pod.channel is not None and pod.channel.peer.digest:
                self.digest = pod.channel.peer.digest
        if len(self.eligible) > before:
            waiters, self._waiters = self._waiters, {}
            for callback in waiters.values():
                callback()


def _address(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.host, endpoint.port
