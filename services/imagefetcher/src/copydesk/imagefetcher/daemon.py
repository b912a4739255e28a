"""The daemon: everything put together, on one event loop and the threads of the device."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2

from copydesk.common.bus import Bus
from copydesk.common.telemetry import get_logger
from copydesk.common.tls import expiry_watched
from copydesk.imagefetcher.control.service import ControlService, health_handler
from copydesk.imagefetcher.device.server import DeviceServer
from copydesk.imagefetcher.device.session import HELD_NAME, Session, end_session, open_session
from copydesk.imagefetcher.errors import ImageError
from copydesk.imagefetcher.fetch.completion import Completion
from copydesk.imagefetcher.fetch.content import Content
from copydesk.imagefetcher.fetch.place import Place
from copydesk.imagefetcher.fetch.source import Source
from copydesk.imagefetcher.forecast import Forecast
from copydesk.imagefetcher.holder.client import HolderClient, HolderError
from copydesk.imagefetcher.library import Library
from copydesk.imagefetcher.metrics import Metrics
from copydesk.imagefetcher.node import Node
from copydesk.imagefetcher.paths import control_socket, device_folder, holder_socket, snapshotter_socket
from copydesk.imagefetcher.peers.directory import PeerDirectory
from copydesk.imagefetcher.peers.exchange import PeerExchange
from copydesk.imagefetcher.peers.service import PeerService
from copydesk.imagefetcher.peers.source import PeerSource
from copydesk.imagefetcher.settings import ImageFetcherSettings
from copydesk.imagefetcher.status import Parts, node_status
from copydesk.imagefetcher.store.ledger import Ledger
from copydesk.imagefetcher.store.recent import RecentSectors
from copydesk.imagefetcher.store.sectors import SectorStore
from copydesk.imagefetcher.upstream import Upstream
from copydesk.imagefetcher.web_server import Answer, Request, RequestError, WebServer

SAVE_S = 2.0
PEER_CONNECT_S = 1.0
HOLDER_S = 2.0
"""How often is looked whether the holder still has what it was given."""

_MIB = 1 << 20

_log = get_logger(__name__)


class StateInUseError(ImageError):
    """Another daemon has the state folder or the run folder: it carries the folder."""

    hint = "Each daemon needs a STATE_DIR and a RUN_DIR of its own."

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(f"{folder}: another daemon uses it")


def lock_folder(folder: Path) -> int:
    """Return a descriptor that keeps other daemons out of a folder until it is closed. Raises StateInUseError."""
    lock = os.open(folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise StateInUseError(folder) from error
    return lock


def _keep_private(folder: Path) -> None:
    """What is in images is for root: who got at their files could run a program that becomes another user."""
    for name in ("sectors", "images", "snapshots"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name).chmod(0o700)


class Daemon:
    """Serves images from `start` to `stop`; with a holder, what is mounted then waits for the next one."""

    def __init__(self, settings: ImageFetcherSettings, upstream: Upstream, metrics: Metrics | None = None) -> None:
        self._settings = settings
        self._upstream = upstream
        self._metrics = metrics or Metrics()
        self._stack = AsyncExitStack()
        self._holder: HolderClient | None = None
        self._ready = False
        self._alive = True

    async def start(self) -> None:
        """Take over or mount the devices, restore mounts, and listen.

        Raises StateInUseError, MountError, HolderError, ListenError, LedgerError, OSError (folders that cannot be
        written).
        """
        settings = self._settings
        for folder in (settings.state_dir, settings.run_dir):
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            self._stack.callback(os.close, lock_folder(folder))
        await asyncio.to_thread(_keep_private, settings.state_dir)
        # A peer that has just lost its power does not refuse: it says nothing at all, while a reader waits.
        timeout = httpx2.Timeout(settings.attempt_timeout_ms / 1000, connect=PEER_CONNECT_S)
        client = httpx2.AsyncClient(timeout=timeout, trust_env=False)
        self._stack.push_async_callback(client.aclose)
        session, parts = await self._assemble(client)
        await parts.node.restore(resumed=session.resumed)
        await self._serve_control(session, parts)
        await self._join_bus(parts)
        await self._serve_containerd(parts.node)
        for work in (parts.completion.run(), self._keep_saving(parts.store), self._keep_held(session)):
            self._spawn(work)
        self._ready = True
        _log.info("image_fetcher_started", resumed=session.resumed, holder=self._holder is not None)

    async def stop(self) -> None:
        """Stop serving. Without a holder readers get errors from now on; with one they wait for the next."""
        self._ready = False
        await self._stack.aclose()

    async def _assemble(self, client: httpx2.AsyncClient) -> tuple[Session, Parts]:
        settings = self._settings
        ledger = Ledger(settings.state_dir / "ledger.sqlite")
        self._stack.callback(ledger.close)
        store = await asyncio.to_thread(
            SectorStore, settings.state_dir / "sectors", settings.cache_limit_mb * _MIB, ledger
        )
        self._stack.callback(store.save)
        library = await asyncio.to_thread(Library, settings.state_dir / "images", ledger)
        directory = PeerDirectory(settings.node_name)
        sources_of = self._sources(library, directory, client)
        content = Content(
            store,
            RecentSectors(settings.memory_mb * _MIB),
            settings.terms(),
            sources_of,
            self._metrics,
            library.start_up,
        )
        self._holder = self._find_holder()
        session = await asyncio.to_thread(open_session, device_folder(settings.run_dir), self._holder)
        devices = DeviceServer(session.channel, content, settings.device_threads)
        node = Node(library, ledger, content, devices, device_folder(settings.run_dir), self._upstream)
        completion = Completion(
            content,
            settings.background_mb_s * 1e6,
            settings.run_sectors,
            node.wanted,
            settings.background_delay_ms / 1000,
        )
        completion.paused = not settings.background
        self._metrics.watch(store, images=lambda: len(library), mounts=lambda: len(node.mounts))
        node.show_devices()
        if session.resumed:
            devices.assume_used()
        devices.start()
        self._stack.push_async_callback(content.fetcher.close)
        self._stack.callback(self._leave, session, devices)
        if session.resumed and not session.channel.resend():
            _log.warning("resend_refused", hint="Linux 6.9 or later; reads of the last daemon may wait for ever")
        return session, Parts(store, library, content, node, completion, directory)

    def _sources(
        self, library: Library, directory: PeerDirectory, client: httpx2.AsyncClient
    ) -> Callable[[Place], Sequence[Source]]:
        token = self._settings.peer_token.get_secret_value()

        def sources_of(place: Place) -> Sequence[Source]:
            known = library.get(place.image)
            upstream = self._upstream.sources(known.reference) if known is not None else ()
            now = asyncio.get_running_loop().time()
            holders = directory.holders(place.image, place.number, now) if self._settings.peer_port else ()
            return [*(PeerSource(peer, token, client) for peer in holders), *upstream]

        return sources_of

    def _find_holder(self) -> HolderClient | None:
        try:
            return HolderClient(holder_socket(self._settings.run_dir))
        except HolderError as error:
            _log.warning("holder_missing", error=str(error), hint=error.hint)
            return None

    def _leave(self, session: Session, devices: DeviceServer) -> None:
        devices.stop()
        if self._holder is None:
            end_session(session, device_folder(self._settings.run_dir), None)
            return
        session.channel.close()
        self._holder.close()

    async def _serve_control(self, session: Session, parts: Parts) -> None:
        control = ControlService(
            parts.node,
            parts.store,
            parts.completion,
            lambda: node_status(
                parts,
                self._upstream,
                node=self._settings.node_name,
                holder=self._holder is not None,
                resumed=session.resumed,
            ),
        )
        health = health_handler(
            self._metrics.registry, alive=lambda: self._alive, ready=lambda: self._ready and self._alive
        )

        async def handle(request: Request) -> Answer:
            return health(request) or await control.handle(request)

        async def handle_health(request: Request) -> Answer:
            answer = health(request)
            if answer is None:
                raise RequestError(HTTPStatus.NOT_FOUND, "the paths are /metrics, /healthz, /readyz")
            return answer

        server = WebServer(handle)
        await server.listen_unix(control_socket(self._settings.run_dir))
        self._stack.push_async_callback(server.close)
        if self._settings.metrics_port:
            metrics = WebServer(handle_health)
            await metrics.listen(self._settings.metrics_host, self._settings.metrics_port)
            self._stack.push_async_callback(metrics.close)

    async def _serve_containerd(self, node: Node) -> None:
        settings = self._settings
        if not settings.snapshotter:
            return
        # Imported here, since gRPC takes 20 MB that a node without containerd does without.
        from copydesk.imagefetcher.snapshotter.catalogue import Catalogue
        from copydesk.imagefetcher.snapshotter.server import SnapshotServer
        from copydesk.imagefetcher.snapshotter.snapshots import Snapshots

        catalogue = Catalogue(settings.state_dir / "snapshots.sqlite")
        self._stack.callback(catalogue.close)
        snapshots = Snapshots(settings.state_dir / "snapshots", catalogue, node, self._upstream)
        await snapshots.settle()
        server = SnapshotServer(snapshots, snapshotter_socket(settings.run_dir))
        await server.start()
        self._stack.push_async_callback(server.close)

    async def _join_bus(self, parts: Parts) -> None:
        settings = self._settings
        tls = settings.nats_tls()
        credentials = [tls.credentials] if tls else []
        await self._stack.enter_async_context(expiry_watched("imagefetcher", credentials, self._metrics.registry))
        parts.node.changed = parts.completion.welcome
        if not settings.peer_port and not settings.forecast:
            return
        token = settings.nats_token.get_secret_value() or None
        bus = await Bus.connect(settings.nats_url, name=f"imagefetcher {settings.node_name}", token=token, tls=tls)
        self._stack.push_async_callback(bus.close)
        if settings.forecast:
            self._spawn(Forecast(bus, parts.node).run())
        if settings.peer_port:
            await self._join_peers(parts, bus)

    async def _join_peers(self, parts: Parts, bus: Bus) -> None:
        settings = self._settings
        service = PeerService(settings.peer_token.get_secret_value(), parts.store.read_whole, self._metrics)
        server = WebServer(service.handle)
        await server.listen(settings.peer_host, settings.peer_port)
        self._stack.push_async_callback(server.close)
        exchange = PeerExchange(
            bus,
            parts.directory,
            node=settings.node_name,
            address=(settings.advertised, server.port),
            images=parts.node.mounted_images,
            held=parts.store.__contains__,
        )

        def changed() -> None:
            parts.completion.welcome()
            exchange.wake()

        parts.node.changed = changed
        self._spawn(exchange.run())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._supervised(work))

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        self._stack.push_async_callback(end)

    async def _supervised(self, work: Coroutine[Any, Any, None]) -> None:
        """A part that fails, which none should, is seen in the health, so that somebody starts the daemon anew."""
        try:
            await work
        except Exception:
            _log.exception("part_failed", part=getattr(work, "__qualname__", ""))
            self._alive = False

    async def _keep_saving(self, store: SectorStore) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            await asyncio.to_thread(store.save)

    async def _keep_held(self, session: Session) -> None:
        """Give the descriptor to a holder that comes later, or anew: then it can be upgraded as well."""
        while True:
            await asyncio.sleep(HOLDER_S)
            if self._holder is not None and await asyncio.to_thread(self._holder.alive):
                continue
            if self._holder is not None:
                self._holder.close()
                self._holder = None
            try:
                holder = await asyncio.to_thread(HolderClient, holder_socket(self._settings.run_dir))
                await asyncio.to_thread(holder.put, HELD_NAME, session.channel.descriptor)
            except HolderError as error:
                _log.debug("holder_missing", error=str(error))
                continue
            self._holder = holder
            _log.info("holder_found", path=str(holder.path))
