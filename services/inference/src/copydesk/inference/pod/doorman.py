"""The supervisor's door: accepts connections and hands each to the worker that has the fewest.

No byte of a request passes here. What a worker does not take in time, since it is frozen or dead, is taken back
and handed to another, and nothing more comes to it until it takes messages again. A worker that has died comes
back with no connection, and connections last for days: so the others give some of theirs back, each between two
requests, until all have the same number again.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence

from copydesk.common.telemetry import get_logger
from copydesk.inference.pod.inbox import Connection, GiveBack, Message, Probe, Receiver, Sender
from copydesk.inference.pod.shares import Share, choose_worker, plan_returns
from copydesk.inference.pod.tally import Tally

_log = get_logger(__name__)

TAKE_SECONDS = 0.5
"""How long a worker may leave a message alone; a busy one takes it within a turn of its event loop."""

EVEN_SECONDS = 2.0
"""Time between two looks at how even the shares are; a worker gives up returning a connection well within it."""

Handed = tuple[Connection, socket.socket]

_ACCEPTS_A_TURN = 256
_ACCEPT_PAUSE_SECONDS = 0.5
_STUCK_LOOK_SECONDS = 0.05


class Door:
    """One worker's inbox, and the account of what went into it since the worker started."""

    def __init__(self, index: int, sender: Sender, receiver: Receiver, tally: Tally) -> None:
        self.sender = sender
        self.receiver = receiver
        self.answers = False
        self._index = index
        self._tally = tally
        self._messages = 0
        self._connections = 0
        self._awaited = 0  # the number of a message; until it is taken the worker gets no connection

    @property
    def stuck(self) -> bool:
        """Whether the worker has been found to take nothing, and has taken nothing since."""
        return not self.has_taken(self._awaited)

    @property
    def share(self) -> Share:
        """What the worker has, and whether it takes more."""
        return Share(self._connections - self._tally.closed(self._index), self.answers and not self.stuck)

    def put(self, message: Message, sock: socket.socket | None = None) -> int | None:
        """Put a message in; return its number, or None when it does not go in."""
        if not self.sender.put(message, sock):
            return None
        self._messages += 1
        self._connections += isinstance(message, Connection)
        return self._messages

    def has_taken(self, number: int) -> bool:
        """Say whether the worker has taken the message of that number."""
        return self._tally.taken(self._index) >= number

    def take_back(self) -> list[Handed]:
        """Take out what the worker has not taken; return the connections among it."""
        connections: list[Handed] = []
        while (taken := self.receiver.take()) is not None:
            message, sock = taken
            self._messages -= 1
            if isinstance(message, Connection) and sock is not None:
                self._connections -= 1
                connections.append((message, sock))
        return connections

    def give_up(self) -> list[Handed]:
        """Take back what the worker leaves alone, and let it wait for a sign of life: that it takes a probe."""
        connections = self.take_back()
        self._awaited = self.put(Probe()) or 0
        return connections

    def forget(self) -> None:
        """Begin a new account, once the worker is dead and what it left has been taken back."""
        self._tally.reset(self._index)
        self._messages = self._connections = self._awaited = 0


class Doorman:
    """Owns the listener, and the `returns` inbox into which workers put connections that they give back.

    With `moves` false none is asked back: then new connections alone make shares even.
    """

    def __init__(
        self,
        listener: socket.socket,
        doors: Sequence[Door],
        returns: Receiver,
        *,
        take_seconds: float = TAKE_SECONDS,
        even_seconds: float = EVEN_SECONDS,
        moves: bool = True,
    ) -> None:
        self._listener = listener
        self._doors = doors
        self._returns = returns
        self._take_seconds = take_seconds
        self._even_seconds = even_seconds
        self._moves = moves
        self._loop = asyncio.get_running_loop()
        self._held: deque[Handed] = deque()
        self._accepting = False
        self._closed = False
        self._loop.add_reader(returns.fileno(), self._take_returned)
        self._evening = self._loop.call_later(even_seconds, self._even_out)

    def shares(self) -> list[Share]:
        """What each worker has."""
        return [door.share for door in self._doors]

    def answering(self, worker: int, answers: bool) -> None:
        """Hear that a worker answers, or that it is dead, which `answers` false means."""
        door = self._doors[worker]
        door.answers = answers
        if not answers:
            self._held.extend(door.take_back())
            door.forget()
        self._hand_over()

    def close(self) -> None:
        """Close the listener and what no worker has, so that clients fail now rather than wait for nothing."""
        self._closed = True
        self._accept_more(False)
        self._evening.cancel()
        self._listener.close()
        self._hand_over()

    def _accept_more(self, wanted: bool) -> None:
        if wanted == self._accepting:
            return
        self._accepting = wanted
        if wanted:
            self._loop.add_reader(self._listener.fileno(), self._accept)
        else:
            self._loop.remove_reader(self._listener.fileno())

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:  # mostly: no file descriptors are left
                _log.error("accept_failed", error=str(error))
                self._accept_more(False)
                self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._hand_over)
                break
            sock.setblocking(False)
            self._held.append((Connection(), sock))
        self._hand_over()

    def _take_returned(self) -> None:
        while (taken := self._returns.take()) is not None:
            message, sock = taken
            if isinstance(message, Connection) and sock is not None:
                self._held.append((message, sock))
        self._hand_over()

    def _hand_over(self) -> None:
        """Hand over what is held; while nobody takes connections, new ones wait in the listener's backlog."""
        while self._held and (self._closed or self._hand_one()):
            _, sock = self._held.popleft()
            sock.close()
        self._accept_more(not self._closed and not self._held and choose_worker(self.shares()) is not None)

    def _hand_one(self) -> bool:
        """Hand over the first that is held, to whomever takes it; false if nobody does."""
        while (worker := choose_worker(self.shares())) is not None:
            if self._put(worker, *self._held[0]):
                return True
            if not self._doors[worker].stuck:  # not even a probe went in
                return False
        return False

    def _put(self, worker: int, message: Message, sock: socket.socket | None = None) -> bool:
        number = self._doors[worker].put(message, sock)
        if number is None:
            self._give_up(worker)
            return False
        self._loop.call_later(self._take_seconds, self._check, worker, number)
        return True

    def _check(self, worker: int, number: int) -> None:
        door = self._doors[worker]
        if self._closed or door.stuck or not door.answers or door.has_taken(number):
            return
        self._give_up(worker)
        self._hand_over()

    def _give_up(self, worker: int) -> None:
        connections = self._doors[worker].give_up()
        _log.warning("worker_takes_nothing", worker=worker, taken_back=len(connections))
        self._held.extend(connections)
        self._loop.call_later(_STUCK_LOOK_SECONDS, self._look_again, worker)

    def _look_again(self, worker: int) -> None:
        if self._doors[worker].stuck and not self._closed:
            self._loop.call_later(_STUCK_LOOK_SECONDS, self._look_again, worker)
        else:
            self._hand_over()

    def _even_out(self) -> None:
        self._evening = self._loop.call_later(self._even_seconds, self._even_out)
        for worker, connections in enumerate(plan_returns(self.shares()) if self._moves else ()):
            if connections:
                _log.info("connections_asked_back", worker=worker, connections=connections)
                self._put(worker, GiveBack(connections))
        self._hand_over()
