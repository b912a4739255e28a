import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from copydesk.common.rpc import Channel, RpcError, Status, UnixAddress
from copydesk.inference.engine import GenerateTokens

REQUEST = msgspec.msgpack.encode(GenerateTokens(prompt=[1], max_tokens=4, stop_ids=[2]))


@pytest.mark.parametrize(
    ("how", "event"),
    [
        ("crash", "a tensor of the wrong shape"),
        ("hang", "engine_hung"),
        ("lost", "vLLM's engine core has died"),
        ("silent", "engine_hung"),
    ],
    ids=["crash", "hang", "lost", "silent"],
)
async def test_an_engine_that_breaks_ends_its_process_and_every_request_with_it(
    how: str, event: str, tmp_path: Path
) -> None:
    socket = str(tmp_path / "engine.sock")
    command = [sys.executable, "-m", "tests.unit.pod.broken_engine", how, socket]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    channel = await connect(socket)
    response = await channel.call(REQUEST, deadline_ms=60_000)
    assert response.status is Status.UNAVAILABLE
    _, log = await asyncio.wait_for(process.communicate(), 30.0)
    assert process.returncode == 70
    assert event in log.decode()
    await channel.close()


async def connect(socket: str) -> Channel:
    async with asyncio.timeout(30.0):
        while True:
            try:
                return await Channel.open(UnixAddress(socket), name="test")
            except RpcError:
                await asyncio.sleep(0.02)
