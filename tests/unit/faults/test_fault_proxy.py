"""The proxy over real sockets: what its weather does to bytes, and when they come through after all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.faults import CLEAR, Condition, FaultProxy, Way, Weather, WeatherError
from tests.fixtures.until import until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


@asynccontextmanager
async def behind_a_proxy(talk: Talk = echo) -> AsyncIterator[FaultProxy]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, FaultProxy(server.sockets[0].getsockname()[:2]) as proxy:
        yield proxy


@asynccontextmanager
async def connected(proxy: FaultProxy) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(proxy.host, proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def silent(reader: asyncio.StreamReader) -> bool:
    """Whether nothing comes for a while."""
    try:
        async with asyncio.timeout(0.2):
            return not await reader.read(1)
    except TimeoutError:
        return True


@settings(max_examples=15)
@given(parts=st.lists(st.binary(min_size=1, max_size=200_000), max_size=4))
def test_in_clear_weather_every_byte_comes_back_and_the_end_with_it(parts: list[bytes]) -> None:
    async def there_and_back() -> bytes:
        async with behind_a_proxy() as proxy, connected(proxy) as (reader, writer):
            reading = asyncio.create_task(reader.read())
            for part in parts:
                writer.write(part)
                await writer.drain()
            writer.write_eof()
            return await reading

    assert asyncio.run(there_and_back()) == b"".join(parts)


async def test_a_delay_is_on_the_way_there_and_on_the_way_back_and_is_no_bottleneck() -> None:
    loop = asyncio.get_running_loop()
    async with behind_a_proxy() as proxy, connected(proxy) as (reader, writer):
        proxy.weather = Weather.delayed(0.1)
        began = loop.time()
        for _ in range(20):
            writer.write(b"x")
            await asyncio.sleep(0.002)
        await reader.readexactly(20)
        # One after another they would have taken four seconds.
        assert 0.2 <= loop.time() - began < 2.0


async def test_a_narrow_link_passes_so_many_bytes_a_second() -> None:
    loop = asyncio.get_running_loop()
    async with behind_a_proxy() as proxy, connected(proxy) as (reader, writer):
        proxy.weather = Weather(back=Condition(bytes_per_s=20_000.0))
        began = loop.time()
        writer.write(b"x" * 10_000)
        await reader.readexactly(10_000)
        assert loop.time() - began >= 0.45


async def test_what_is_dropped_arrives_once_the_network_is_back() -> None:
    async with behind_a_proxy() as proxy, connected(proxy) as (reader, writer):
        proxy.weather = Weather.dropping()
        writer.write(b"lost?")
        assert await silent(reader)
        proxy.weather = CLEAR
        assert await reader.readexactly(5) == b"lost?"


@pytest.mark.parametrize("way", list(Way))
async def test_one_way_alone_may_be_open(way: Way) -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"greeting")
        while data := await reader.read(100):
            heard.extend(data)

    async with behind_a_proxy(listen) as proxy:
        proxy.weather = Weather.one_way(way)
        async with connected(proxy) as (reader, writer):
            writer.write(b"request")
            if way is Way.FORTH:
                await until(lambda: heard == b"request")
                assert await silent(reader)
            else:
                assert await reader.readexactly(8) == b"greeting"
                assert not heard


async def test_a_reset_breaks_both_sides_at_once_and_new_connections_pass() -> None:
    ended = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"!")
        try:
            await reader.read()
        except ConnectionResetError:
            ended.set()

    async with behind_a_proxy(wait) as proxy:
        async with connected(proxy) as (reader, _):
            await reader.readexactly(1)
            assert proxy.reset() == 1
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
        await asyncio.wait_for(ended.wait(), 15)
        async with connected(proxy) as (reader, _):
            assert await reader.readexactly(1) == b"!"


async def test_a_half_open_connection_swallows_all_and_is_reset_when_the_far_side_is_back() -> None:
    async with behind_a_proxy() as proxy, connected(proxy) as (reader, writer):
        writer.write(b"1")
        await reader.readexactly(1)
        assert proxy.forget() == 1
        writer.write(b"2")
        assert await silent(reader)
        async with connected(proxy) as (other_reader, other_writer):
            other_writer.write(b"3")
            assert await other_reader.readexactly(1) == b"3"
            assert proxy.bury() == 1
            with pytest.raises(ConnectionResetError):
                await reader.read(1)
            other_writer.write(b"4")
            assert await other_reader.readexactly(1) == b"4"


async def test_with_nobody_behind_it_connections_end_and_the_target_may_come_later() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = unused.getsockname()
        async with behind_a_proxy() as proxy:
            somebody, proxy.target = proxy.target, nobody
            async with connected(proxy) as (reader, _):
                with pytest.raises(ConnectionResetError):
                    await reader.read(1)
            proxy.target = somebody
            async with connected(proxy) as (reader, writer):
                writer.write(b"here")
                assert await reader.readexactly(4) == b"here"


async def test_nothing_is_left_of_connections_that_ended() -> None:
    async with behind_a_proxy() as proxy:
        for _ in range(20):
            async with connected(proxy) as (reader, writer):
                writer.write(b"x")
                await reader.readexactly(1)
        await until(lambda: proxy.connections == 0)


@pytest.mark.parametrize("figures", [{"delay_s": -1.0}, {"delay_s": float("nan")}, {"bytes_per_s": 0.0}])
def test_figures_that_no_link_has_are_refused_by_name(figures: dict[str, float]) -> None:
    with pytest.raises(WeatherError, match=next(iter(figures))):
        Condition(**figures)  # type: ignore[arg-type]
