import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from copydesk.inference.pod.doorman import Door, Doorman
from copydesk.inference.pod.inbox import Connection, GiveBack, Receiver, Sender, inbox
from copydesk.inference.pod.tally import Tally
from tests.fixtures.until import until

NEVER = 3600.0


class Worker:
    """Takes connections when told to, and keeps the counts that a worker keeps."""

    def __init__(self, index: int, inbox_end: Receiver, returns: Sender, tally: Tally) -> None:
        self.connections: list[socket.socket] = []
        self.peers: list[str | None] = []
        self.asked_back = 0
        self._index = index
        self._inbox = Receiver(socket.socket(fileno=os.dup(inbox_end.fileno())))
        self._returns = returns
        self._tally = tally

    def take(self) -> None:
        while (taken := self._inbox.take()) is not None:
            self._tally.count_taken(self._index)
            message, sock = taken
            if isinstance(message, Connection):
                assert sock is not None
                self.connections.append(sock)
                self.peers.append(message.peer)
            elif isinstance(message, GiveBack):
                self.asked_back += message.connections

    def give_back(self, count: int) -> None:
        for _ in range(count):
            with self.connections.pop() as sock:
                assert self._returns.put(Connection("greeted"), sock)
            self._tally.count_closed(self._index)

    def die(self) -> None:
        for sock in self.connections:
            sock.close()
        self.connections.clear()

    def close(self) -> None:
        self.die()
        self._inbox.close()


class Entrance:
    """A doorman, his workers, and clients."""

    def __init__(
        self, tmp_path: Path, workers: int, take_seconds: float, even_seconds: float, *, moves: bool = True
    ) -> None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        self._address = listener.getsockname()
        tally = Tally(tmp_path / "tally", workers)
        self._returns, returned = inbox()
        self._doors = [Door(index, *inbox(), tally) for index in range(workers)]
        self.doorman = Doorman(
            listener, self._doors, returned, take_seconds=take_seconds, even_seconds=even_seconds, moves=moves
        )
        self.workers = [
            Worker(index, door.receiver, self._returns, tally) for index, door in enumerate(self._doors)
        ]
        self._returned = returned
        self.clients: list[socket.socket] = []

    def connect(self, count: int) -> None:
        self.clients += [socket.create_connection(self._address) for _ in range(count)]

    def take(self) -> list[int]:
        for worker in self.workers:
            worker.take()
        return [len(worker.connections) for worker in self.workers]

    def close(self) -> None:
        self.doorman.close()
        asyncio.get_running_loop().remove_reader(self._returned.fileno())
        for door in self._doors:
            for _, sock in door.take_back():
                sock.close()
            door.sender.close()
            door.receiver.close()
        for worker in self.workers:
            worker.close()
        for client in self.clients:
            client.close()
        self._returns.close()
        self._returned.close()


@asynccontextmanager
async def entrance(
    tmp_path: Path,
    workers: int,
    *,
    take_seconds: float = NEVER,
    even_seconds: float = NEVER,
    moves: bool = True,
) -> AsyncIterator[Entrance]:
    door = Entrance(tmp_path, workers, take_seconds, even_seconds, moves=moves)
    try:
        yield door
    finally:
        door.close()


async def test_connections_are_dealt_out_evenly_whatever_their_order_in_time(tmp_path: Path) -> None:
    async with entrance(tmp_path, 4) as door:
        for index in range(4):
            door.doorman.answering(index, True)
        door.connect(30)
        await until(lambda: sum(door.take()) == 30)
        door.connect(34)
        await until(lambda: sum(door.take()) == 64)
        assert door.take() == [16, 16, 16, 16]


async def test_connections_wait_until_a_worker_answers(tmp_path: Path) -> None:
    async with entrance(tmp_path, 2) as door:
        door.connect(3)
        await asyncio.sleep(0.01)
        assert door.take() == [0, 0]
        door.doorman.answering(1, True)
        await until(lambda: door.take() == [0, 3])


async def test_what_a_frozen_worker_has_not_taken_goes_to_the_others(tmp_path: Path) -> None:
    async with entrance(tmp_path, 2, take_seconds=0.02) as door:
        for index in range(2):
            door.doorman.answering(index, True)
        frozen, other = door.workers
        door.connect(6)

        def other_has(count: int) -> bool:
            other.take()
            return len(other.connections) == count

        await until(lambda: other_has(6))
        door.connect(4)
        await until(lambda: other_has(10))
        frozen.take()
        assert frozen.connections == []
        door.connect(4)
        await until(lambda: door.take() == [4, 10])


async def test_what_a_dead_worker_has_not_taken_goes_to_the_others_at_once(tmp_path: Path) -> None:
    async with entrance(tmp_path, 2) as door:
        for index in range(2):
            door.doorman.answering(index, True)
        door.connect(8)
        await until(lambda: sum(share.connections for share in door.doorman.shares()) == 8)
        dead, other = door.workers
        door.doorman.answering(0, False)
        other.take()
        assert len(other.connections) == 8
        dead.take()
        assert dead.connections == []


async def test_nothing_is_lost_while_no_worker_is_there(tmp_path: Path) -> None:
    async with entrance(tmp_path, 1, take_seconds=0.02) as door:
        door.doorman.answering(0, True)
        door.connect(5)
        await until(lambda: not door.doorman.shares()[0].takes)
        door.doorman.answering(0, False)
        door.connect(2)
        assert door.take() == [0]
        door.doorman.answering(0, True)
        await until(lambda: door.take() == [7])


async def test_where_connections_cannot_move_new_ones_alone_make_shares_even(tmp_path: Path) -> None:
    async with entrance(tmp_path, 2, even_seconds=0.01, moves=False) as door:
        door.doorman.answering(0, True)
        door.connect(6)
        await until(lambda: door.take() == [6, 0])
        door.doorman.answering(1, True)
        await asyncio.sleep(0.05)  # some looks at how even the shares are
        assert door.take() == [6, 0]
        door.connect(6)
        await until(lambda: door.take() == [6, 6])


async def test_a_worker_that_came_back_gets_its_share_from_the_others(tmp_path: Path) -> None:
    async with entrance(tmp_path, 4, even_seconds=0.02) as door:
        for index in range(4):
            door.doorman.answering(index, True)
        door.connect(64)
        await until(lambda: door.take() == [16] * 4)
        door.workers[2].die()
        door.doorman.answering(2, False)
        door.connect(16)
        await until(lambda: sum(door.take()) == 64)
        assert door.take() == [22, 21, 0, 21]
        door.doorman.answering(2, True)

        def evened() -> bool:
            for worker in door.workers:
                worker.give_back(worker.asked_back)
                worker.asked_back = 0
            return door.take() == [16] * 4

        await until(evened)
        assert door.workers[2].peers[-16:] == ["greeted"] * 16


async def test_once_the_door_is_closed_what_comes_back_is_closed_too(tmp_path: Path) -> None:
    async with entrance(tmp_path, 1) as door:
        door.doorman.answering(0, True)
        door.connect(1)
        await until(lambda: door.take() == [1])
        door.doorman.close()
        door.workers[0].give_back(1)
        door.clients[0].setblocking(False)
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(door.clients[0], 1), 5.0) == b""
