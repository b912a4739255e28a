"""Fetches a model's image ahead when the autoscaler says that more pods are coming, before one lands here."""

from __future__ import annotations

import asyncio

from copydesk.common.bus import Bus
from copydesk.common.messages import ScaleDecision, scale_subject
from copydesk.common.telemetry import get_logger
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.node import Node

MOST_MODELS = 4096
MOST_IMAGES = 64
"""What is remembered of decisions, and images that wait for their turn: anybody on NATS can make up more."""

_log = get_logger(__name__)


def calls_for_image(before: ScaleDecision | None, now: ScaleDecision) -> bool:
    """Whether after a decision nodes will need an image that they may not have: for more pods, or another one."""
    if not now.image or now.replicas < 1:
        return False
    return before is None or before.image != now.image or now.replicas > before.replicas


class Forecast:
    """Hears decisions on `bus`, and has `node` fetch the sectors of the recorded start-up, one image at a time."""

    def __init__(self, bus: Bus, node: Node) -> None:
        self._bus = bus
        self._node = node
        self._last: dict[str, ScaleDecision] = {}
        self._wanted: dict[str, None] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Listen and fetch for ever."""
        await self._bus.subscribe(scale_subject("*"), ScaleDecision, self._hear)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                image = next(iter(self._wanted))
                del self._wanted[image]
                await self._fetch(image)

    def _hear(self, decision: ScaleDecision) -> None:
        before = self._last.pop(decision.model, None)
        self._last[decision.model] = decision
        if len(self._last) > MOST_MODELS:
            del self._last[next(iter(self._last))]
        if calls_for_image(before, decision) and len(self._wanted) < MOST_IMAGES:
            self._wanted[decision.image] = None
            self._wake.set()

    async def _fetch(self, image: str) -> None:
        try:
            _, fetching = await self._node.prefetch(image, everything=False)
        except ImageError as error:
            _log.info("forecast_without_image", image=image, error=str(error))
            return
        _log.info("image_fetched_ahead", image=image, sectors=fetching)
