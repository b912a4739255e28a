"""A fleet of a known capacity, as a process of its own: `python slot_server.py SLOTS SERVICE_MS [KEY]`.

It answers `/v1/correct` from so many slots, first come first served, and `/v1/fleet` about itself. Its first line
says on which port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

MODEL = "slots"
DIGEST = "d" * 64


class SlotServer:
    def __init__(self, slots: int, service: float, key: str = "") -> None:
        self.slots, self.service, self.key = slots, service, key
        self.free = asyncio.Semaphore(slots)
        self.texts: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().lower().split("\r\n")
                length = next((int(line[15:]) for line in lines if line.startswith("content-length:")), 0)
                body = await reader.readexactly(length)
                allowed = not self.key or f"authorization: bearer {self.key}" in lines
                status, answer = await self.answer(lines[0].split()[1], body) if allowed else (401, REFUSED)
                content = json.dumps(answer).encode()
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(content)) + content)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if path == "/v1/fleet":
            return 200, self.fleet()
        text = json.loads(body)["text"]
        async with self.free:
            await asyncio.sleep(self.service)
        return 200, {"corrected": text, "edits": []}

    def fleet(self) -> dict[str, Any]:
        pod = {"id": "p1", "state": "ready", "connected": True, "capacity": self.slots}
        return {"model": MODEL, "model_digest": DIGEST, "discovery_connected": True, "pods": [pod]}


REFUSED = {"error": {"code": "unauthorized", "message": "the API key is missing or wrong"}}


async def main(slots: int, service: float, key: str) -> None:
    slot_server = SlotServer(slots, service, key)
    server = await asyncio.start_server(slot_server.serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    asyncio.run(main(int(arguments[0]), float(arguments[1]) / 1000.0, arguments[2] if len(arguments) > 2 else ""))
