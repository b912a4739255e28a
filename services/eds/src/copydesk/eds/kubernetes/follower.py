"""Following one resource: list it page by page, watch it from there, and do so again whenever that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from copydesk.common.telemetry import get_logger
from copydesk.eds.kubernetes.cluster import Deleted, Listed, Order, Written, key_of
from copydesk.eds.kubernetes.course import Course, Ended, next_course
from copydesk.eds.kubernetes.objects import Bookmark, EndpointSlice, ListMetadata, Service, WatchEvent
from copydesk.eds.kubernetes.reason import Reason, SilentError
from copydesk.kube.api import Api, decode, refusal
from copydesk.kube.objects import Status
from copydesk.kube.trouble import ExpiredError, KubernetesError, NonsenseError, TooLargeError, is_denied

# The server is asked to end a watch after this part of the longest silence; it sends a bookmark before. So a watch
# that is well says something in time, and one that says nothing is dead or without bookmarks.
WATCH_SHARE = 0.5

# A watch that lasted this many seconds, or half of what was asked for, was not cut off at once.
SOUND_SECONDS = 5.0

# A page that is too large to be read is asked for anew with so many times fewer objects.
PAGE_SHRINKS = 4

T = TypeVar("T", Service, EndpointSlice)
Word = Listed[T] | Written[T] | Deleted

_log = get_logger(__name__)


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list."""

    metadata: ListMetadata
    items: tuple[T, ...] | None = None


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """What to follow: the collection at `path`, of objects that match the label selector `selector`.

    `name` is the plural by which rights are granted; `item` and `page` are the types of an object and of a page.
    """

    name: str
    path: str
    selector: str
    item: type[T]
    page: type[Page[T]]


@dataclass(frozen=True, slots=True)
class Pace:
    """`silence`: seconds after which a watch that says nothing is given up; `page`: objects a page of a list."""

    silence: float
    page: int


class Audience(Protocol[T]):
    """Who a follower tells what it learns."""

    def learn(self, words: list[Word[T]]) -> None:
        """Take in what was told at once; an empty list: nothing has changed."""

    def relisted(self, resource: str, reason: Reason) -> None:
        """Note that all was listed, and why."""

    def failing(self, resource: str, reason: Reason | None) -> None:
        """Note why the resource cannot be heard at present; None: it can again."""


class Follower(Generic[T]):
    """Follows one resource until cancelled; `random` and `sleep` are passed in for tests."""

    def __init__(
        self,
        api: Api,
        resource: Resource[T],
        pace: Pace,
        audience: Audience[T],
        *,
        random: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._resource: Resource[T] = resource
        self._pace = pace
        self._audience: Audience[T] = audience
        self._random = random
        self._sleep = sleep
        self._page_size = pace.page
        self._lists = 0
        self._listed = 0
        self._version = ""
        self._words = 0
        self._sound = False
        self._heard = 0.0
        self._complaint = ""

    async def run(self) -> None:
        """Follow; whatever happens, there is a next attempt."""
        course = Course(Reason.START, 0.0, failed=False, attempt=0)
        while True:
            ended = await self._attempt(course.relist)
            course = next_course(ended, course.attempt, self._random())
            self._tell(ended, course)
            if course.pause > 0:
                await self._sleep(course.pause)

    async def _attempt(self, relist: Reason | None) -> Ended:
        self._words, self._sound = 0, False
        error: Exception | None = None
        try:
            if relist is not None:
                await self._list()
                self._audience.relisted(self._resource.name, relist)
            await self._watch()
        except KubernetesError as trouble:
            error = trouble
        except Exception as fault:  # a fault of this program must not end the only one who follows the fleet
            _log.exception("kubernetes_follower_failed", resource=self._resource.name)
            error = fault
        return Ended(error, self._words, self._sound)

    async def _list(self) -> None:
        objects: list[T] = []
        page = await self._page(None)
        objects.extend(page.items or ())
        while page.metadata.continue_:
            page = await self._page(page.metadata.continue_)
            objects.extend(page.items or ())
        version = _revision(page.metadata.resource_version)
        self._lists += 1
        self._listed = version
        self._version = str(version)
        self._hear()
        self._audience.learn([Listed((self._lists, version), tuple(objects))])

    async def _page(self, token: str | None) -> Page[T]:
        params = {"limit": str(self._page_size), "labelSelector": self._resource.selector}
        if token is not None:
            params["continue"] = token
        try:
            return await self._api.get(self._resource.path, self._resource.page, params)
        except TooLargeError:
            self._page_size = max(1, self._page_size // PAGE_SHRINKS)
            raise

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        lasts = max(1, round(self._pace.silence * WATCH_SHARE * (0.8 + 0.2 * self._random())))
        params = {
            "labelSelector": self._resource.selector,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(lasts),
        }
        began = loop.time()
        try:
            async with asyncio.timeout_at(self._heard + self._pace.silence) as limit:
                async with self._api.watch(self._resource.path, params) as batches:
                    self._recover()
                    async for lines in batches:
                        self._take(lines)
                        limit.reschedule(self._heard + self._pace.silence)
        except TimeoutError as error:
            raise SilentError(f"the watch said nothing for {self._pace.silence:g} s") from error
        finally:
            self._sound = loop.time() - began >= min(SOUND_SECONDS, 0.5 * lasts)

    def _take(self, lines: list[bytes]) -> None:
        words: list[Word[T]] = []
        try:
            for line in lines:
                word = self._read(line)
                self._words += 1
                if word is not None:
                    words.append(word)
        finally:
            if self._words:
                self._hear()
            self._audience.learn(words)

    def _read(self, line: bytes) -> Word[T] | None:
        event = decode(line, WatchEvent)
        if event.type == "ERROR":
            raise refusal(decode(event.object, Status))
        if event.type == "BOOKMARK":
            self._advance(_revision(decode(event.object, Bookmark).metadata.resource_version), int(self._version))
            return None
        item = decode(event.object, self._resource.item)
        version = _revision(item.metadata.resource_version)
        self._advance(version, self._listed)
        order: Order = (self._lists, version)
        if event.type in ("ADDED", "MODIFIED"):
            return Written(order, item)
        if event.type == "DELETED":
            return Deleted(order, key_of(item.metadata))
        raise NonsenseError(f"an event of type {event.type!r}")

    def _advance(self, version: int, least: int) -> None:
        # A watch tells what came after its beginning: the store has been put back to an earlier state meanwhile.
        if version < least:
            raise ExpiredError(f"the store is at revision {version}, and was at {least} before")
        self._version = str(version)

    def _hear(self) -> None:
        self._heard = asyncio.get_running_loop().time()

    def _recover(self) -> None:
        # A list alone is not enough: where watches are refused, a change shows only with the next list.
        self._audience.failing(self._resource.name, None)
        if self._complaint:
            _log.info("kubernetes_heard_again", resource=self._resource.name)
            self._complaint = ""

    def _tell(self, ended: Ended, course: Course) -> None:
        if course.failed:
            self._audience.failing(self._resource.name, course.relist)
        if ended.error is None:
            return
        complaint = str(ended.error)
        if not course.failed:
            _log.info("kubernetes_watch_ended", resource=self._resource.name, why=complaint)
        elif complaint != self._complaint:
            self._complaint = complaint
            event = "kubernetes_denied" if is_denied(ended.error) else "kubernetes_unheard"
            _log.warning(event, resource=self._resource.name, problem=complaint)


def _revision(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise NonsenseError(f"resourceVersion {text!r}")
    return int(text)
