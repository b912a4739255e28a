"""One stream of one subscriber: requests in, what it is owed out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic

from google.protobuf.message import DecodeError

from copydesk.common.errors import CopydeskError
from copydesk.common.telemetry import get_logger
from copydesk.eds.xds.catalogue import Catalogue
from copydesk.eds.xds.metrics import XdsMetrics
from copydesk.eds.xds.subscription import Subscription, owed, send
from copydesk.eds.xds.variant import Request, Variant

# A subscriber to every model there can be (roster.MAX_MODELS) has fewer names.
MAX_NAMES = 1_000

# Seconds between responses: the changes of many models come one by one, and a response costs more than what is in
# it. The first change after a pause goes out at once.
PACE_S = 0.02

# What a subscriber writes into an error or its own name ends in our log.
LONGEST_QUOTE = 500
MAX_QUOTED = 20

_log = get_logger(__name__)


class SubscriptionError(CopydeskError):
    """A subscriber cannot be served: `reason` is a word for it."""

    reason: ClassVar[str]


class MalformedRequestError(SubscriptionError):
    """What a subscriber sent is no request."""

    reason = "malformed"


class TooManyNamesError(SubscriptionError):
    """A stream subscribes to more names than there can be models; `names` of them."""

    reason = "too_many_names"

    def __init__(self, names: int) -> None:
        self.names = names
        super().__init__(f"{names} names are subscribed to, and {MAX_NAMES} is the limit")


class Stream(Generic[Request]):
    """Serves one stream from `catalogue`; `default_type` is what requests mean that name no type."""

    def __init__(
        self, variant: Variant[Request], catalogue: Catalogue, metrics: XdsMetrics, *, default_type: str
    ) -> None:
        self._variant: Variant[Request] = variant
        self._catalogue = catalogue
        self._metrics = metrics
        self._default_type = default_type
        self._subscriptions: dict[str, Subscription] = {}
        self._foreign: set[str] = set()
        self._node = ""
        self._nonce = 0
        self._wake = asyncio.Event()

    async def run(
        self, read: Callable[[], Awaitable[bytes | None]], write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Serve until `read` returns None: the subscriber has no more to say; raise `SubscriptionError`."""
        reading = asyncio.create_task(self._read(read))
        try:
            while not reading.done():
                await self._wake.wait()
                self._wake.clear()
                if await self._push(write):
                    await asyncio.sleep(PACE_S)
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def notice(self, type_url: str, name: str) -> None:
        """Wake up if the subscriber wants that resource, of which there is a new version, and is not busy."""
        subscription = self._subscriptions.get(type_url)
        if subscription is not None and subscription.flight is None and subscription.wants(name):
            self._wake.set()

    async def _read(self, read: Callable[[], Awaitable[bytes | None]]) -> None:
        try:
            while (data := await read()) is not None:
                self._take(self._variant.read(data))
                self._wake.set()
        except DecodeError as error:
            raise MalformedRequestError(str(error)) from error
        finally:
            self._wake.set()

    def _take(self, request: Request) -> None:
        self._node = request.node.id[:LONGEST_QUOTE] or self._node
        type_url = request.type_url or self._default_type
        if type_url not in self._catalogue.types:
            self._pass_over(type_url)
            return
        before = self._subscriptions.get(type_url, Subscription())
        after = self._variant.take(before, request)
        if len(after.names) > MAX_NAMES:
            raise TooManyNamesError(len(after.names))
        self._subscriptions[type_url] = after
        if request.HasField("error_detail") and before.flight is not None and after.flight is None:
            self._refused(type_url, request.error_detail.message, before)

    def _refused(self, type_url: str, problem: str, before: Subscription) -> None:
        versions = before.flight.versions if before.flight is not None else {}
        self._metrics.nacked(self._variant.kind)
        _log.warning(
            "xds_response_refused",
            node=self._node,
            kind=self._variant.kind.value,
            type=type_url.rpartition(".")[2],
            resources=sorted(versions)[:MAX_QUOTED],
            count=len(versions),
            problem=problem[:LONGEST_QUOTE],
        )

    def _pass_over(self, type_url: str) -> None:
        # Silence lets a subscriber keep what it has of a type that is not ours; an empty answer might take it.
        name = type_url.rpartition(".")[2][:LONGEST_QUOTE]
        if name not in self._foreign and len(self._foreign) < MAX_QUOTED:
            self._foreign.add(name)
            _log.info("xds_type_not_served", node=self._node, type=name)

    async def _push(self, write: Callable[[bytes], Awaitable[None]]) -> bool:
        """Send what is owed; return whether anything was."""
        before = self._nonce
        for type_url in self._catalogue.types:
            subscription = self._subscriptions.get(type_url)
            if subscription is None:
                continue
            versions = owed(subscription, self._catalogue.versions(type_url))
            if not versions:
                continue
            self._nonce += 1
            nonce = str(self._nonce)
            self._subscriptions[type_url] = send(subscription, versions, nonce)
            resources = self._catalogue.resources(type_url, versions)
            self._metrics.pushed(self._variant.kind, len(resources))
            # No new version comes between the choice and the encoding: nothing is awaited there.
            await write(self._variant.put(type_url, resources, nonce))
        return self._nonce > before
