"""As much of a Kubernetes API server as discovery asks for: lists and watches of Services and EndpointSlices.

`python -m bench.eds.api_server SERVICES ENDPOINTS` prints its port. A line `go RATE SECONDS` on standard input has
it change the cluster at equal distances, whatever becomes of the readers, and print what it has done as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bench.eds.cluster import NAMESPACE, Cluster

BOOKMARK_SECONDS = 5.0


class ApiServer:
    """Serves one cluster; every watch has a queue of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._watches: dict[asyncio.Queue[str], None] = {}
        self._log: list[tuple[int, str]] = []

    async def start(self) -> int:
        """Listen on a free port, and return it."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def change(self, rate: float, seconds: float) -> dict[str, float]:
        """Make `rate` changes a second for so long; return how many there were, and how late the latest was."""
        begin = time.monotonic()
        late, made, replaced = 0.0, 0, self._cluster.replaced
        while made < rate * seconds:
            due = begin + made / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            late = max(late, now - due)
            model = self._cluster.change(int(now * 1e6))
            line = f'{{"type":"MODIFIED","object":{self._cluster.slice_of(model)}}}\n'
            self._log.append((self._cluster.revision, line))
            for queue in self._watches:
                queue.put_nowait(line)
            made += 1
        return {"changes": made, "replaced": self._cluster.replaced - replaced, "latest_ms": late * 1000}

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await self._answer(head.split(" ")[1], writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, target: str, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        is_slices = parts.path.endswith("/endpointslices")
        if query.get("watch") == "true":
            seconds = float(query.get("timeoutSeconds", "300"))
            await self._watch(writer, int(query["resourceVersion"]), seconds, changing=is_slices)
            return
        body = (self._cluster.slices() if is_slices else self._cluster.services()).encode()
        writer.write(_head(f"Content-Length: {len(body)}") + body)
        await writer.drain()

    async def _watch(self, writer: asyncio.StreamWriter, revision: int, seconds: float, *, changing: bool) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        writer.write(_head("Transfer-Encoding: chunked"))
        if changing:
            for _, line in (entry for entry in self._log if entry[0] > revision):
                queue.put_nowait(line)
            self._watches[queue] = None
        try:
            end = time.monotonic() + seconds
            while (rest := end - time.monotonic()) > 0:
                try:
                    line = await asyncio.wait_for(queue.get(), min(rest, BOOKMARK_SECONDS))
                except TimeoutError:
                    line = self._bookmark()
                writer.write(f"{len(line):x}\r\n{line}\r\n".encode())
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        finally:
            self._watches.pop(queue, None)

    def _bookmark(self) -> str:
        metadata = {"resourceVersion": str(self._cluster.revision)}
        return json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}) + "\n"


def _head(length: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()


def kube_config(directory: Path, port: int) -> Path:
    """Write a file into `directory` that says how to reach the server on `port`; return its path."""
    path = directory / "kubeconfig"
    server = {"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench", "namespace": NAMESPACE}}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [server],
        "contexts": [context],
        "users": [{"name": "bench", "user": {}}],
        "current-context": "bench",
    }
    path.write_text(json.dumps(config))
    return path


async def main(services: int, endpoints: int) -> None:
    """Serve until standard input ends."""
    server = ApiServer(Cluster(services, endpoints))
    print(await server.start(), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        _, rate, seconds = line.split()
        print(json.dumps(await server.change(float(rate), float(seconds))), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
