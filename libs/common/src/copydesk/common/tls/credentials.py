"""Contexts that follow their files: what is renewed on disk is used for the next connection, without a restart.

Connections that stand are left alone; they were let in by what held then.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from copydesk.common.telemetry import get_logger
from copydesk.common.tls.contexts import client_context, server_context
from copydesk.common.tls.errors import TlsError
from copydesk.common.tls.files import Lifetimes, Signature, TlsFiles, check_files

_log = get_logger(__name__)


class Credentials:
    """What this process shows and accepts on one kind of link; raises `TlsError` if the files are unusable.

    Files that have become unusable later (one of two that belong together may have been written alone) are logged,
    once, and what was read before stays in force until they change again. `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        files: TlsFiles,
        build: Callable[[TlsFiles], ssl.SSLContext],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.files = files
        self._build = build
        self._clock = clock
        self._seen, self._context, self.lifetimes = self._read()

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection that is made now."""
        self.look()
        return self._context

    def look(self) -> None:
        """Read the files anew if they have changed."""
        if self.files.signature() == self._seen:
            return
        try:
            self._seen, self._context, self.lifetimes = self._read()
        except TlsError as error:
            self._seen = self.files.signature()
            _log.error("tls_files_unusable", link=self.files.link, error=str(error))
        else:
            _log.info("tls_files_renewed", link=self.files.link, certificate=str(self.files.certificate))

    def _read(self) -> tuple[Signature, ssl.SSLContext, Lifetimes]:
        seen = self.files.signature()  # before they are read: what changes meanwhile is read again
        lifetimes = check_files(self.files, self._clock())
        return seen, self._build(self.files), lifetimes


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How connections to one kind of peer are made: `name` is what a peer's certificate must be for.

    An empty name stands for the host that is connected to.
    """

    credentials: Credentials
    name: str

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection that is made now."""
        return self.credentials.context()


def client_tls(files: TlsFiles, name: str, clock: Callable[[], float] = time.time) -> ClientTls:
    """Return how to connect to peers whose certificates are for `name`; raises `TlsError`."""
    return ClientTls(Credentials(files, client_context, clock), name)


def server_tls(files: TlsFiles, clock: Callable[[], float] = time.time) -> tuple[Credentials, ssl.SSLContext]:
    """Return a server's credentials, and one context for all of its life that follows them; raises `TlsError`.

    Listeners take their context once. So this one has each handshake go on with the newest, as soon as the client
    has said hello: https://docs.python.org/3/library/ssl.html#ssl.SSLContext.sni_callback
    """
    credentials = Credentials(files, server_context, clock)
    front = server_context(files)

    def on_hello(connection: ssl.SSLObject, _name: str | None, _front: ssl.SSLContext) -> None:
        connection.context = credentials.context()

    front.sni_callback = on_hello
    return credentials, front
