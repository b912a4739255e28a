"""The Kubernetes source against a server that does what a real one does only on a bad day."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from copydesk.eds.kubernetes import course
from copydesk.kube import api
from tests.fixtures.kube_faults import (
    Answer,
    FaultyServer,
    Request,
    event_line,
    faulty_server,
    hang,
    listing,
    quiet,
)
from tests.fixtures.kube_objects import pod_json, service_json, slice_json
from tests.fixtures.kube_source import following
from tests.fixtures.until import until

SLICES = "endpointslices"


def slice_of(*pods: str, version: int = 2, name: str = "s1") -> dict[str, Any]:
    return slice_json(name, *(pod_json(pod, f"10.0.0.{ord(pod[0])}") for pod in pods), version=version)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultyServer]:
    """A server with the Service `gec` and its slice with pod `a`, and a source that is quick to try again."""
    monkeypatch.setattr(course, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(course, "LONGEST_PAUSE", 0.05)
    async with faulty_server() as server:
        server.lists["services"] = [listing(2, service_json(version=2))]
        server.lists[SLICES] = [listing(2, slice_of("a"))]
        yield server


async def test_a_watch_that_hangs_is_given_up_and_all_is_listed_again(
    server: FaultyServer, tmp_path: Path
) -> None:
    server.lists[SLICES].append(listing(9, slice_of("a", "b", version=9)))
    async with following(server.config(tmp_path / "config"), silence=0.3) as stated:
        await stated.until(a="ready", b="ready")
        assert (SLICES, "silent") in stated.relisted
        assert stated.failed == []
        assert server.params["watch", SLICES][0]["allowWatchBookmarks"] == "true"


async def test_a_watch_that_does_not_even_begin_is_given_up_as_well(server: FaultyServer, tmp_path: Path) -> None:
    server.watches[SLICES] = [hang]
    server.lists[SLICES].append(listing(9, slice_of("b", version=9)))
    async with following(server.config(tmp_path / "config"), silence=0.3) as stated:
        await stated.until(b="ready")
        assert (SLICES, "silent") in stated.relisted


async def test_bytes_without_a_word_do_not_keep_a_watch_alive(server: FaultyServer, tmp_path: Path) -> None:
    async def drip(request: Request) -> None:
        request.chunks()
        while True:
            request.chunk(b"\n")
            await asyncio.sleep(0.02)

    server.watches[SLICES] = [drip]
    async with following(server.config(tmp_path / "config"), silence=0.3) as stated:
        await until(lambda: (SLICES, "silent") in stated.relisted)


async def test_bookmarks_keep_a_watch_alive_and_it_goes_on_from_the_last_of_them(
    server: FaultyServer, tmp_path: Path
) -> None:
    async def mark(request: Request) -> None:
        request.chunks()
        for version in range(10, 20):
            request.event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})
            await asyncio.sleep(0.1)
        request.end()

    server.watches[SLICES] = [mark, quiet]
    async with following(server.config(tmp_path / "config"), silence=0.6):
        await until(lambda: server.count("watch", SLICES) == 2)
        assert server.count("list", SLICES) == 1
        assert [params["resourceVersion"] for params in server.params["watch", SLICES]] == ["2", "19"]


@pytest.mark.parametrize("ending", [b"", b'5\r\n{"typ', b"zz\r\n", b"80000000\r\n"])
async def test_a_stream_that_ends_amid_a_chunk_is_continued_after_its_last_whole_line(
    server: FaultyServer, tmp_path: Path, ending: bytes
) -> None:
    async def break_off(request: Request) -> None:
        request.chunks()
        half = event_line("ADDED", slice_of("c", version=4, name="s3"))[:60]
        request.chunk(event_line("ADDED", slice_of("b", version=3, name="s2")) + half)
        request.raw(ending)

    async def go_on(request: Request) -> None:
        request.chunks()
        request.event("ADDED", slice_of("c", version=4, name="s3"))
        await hang(request)

    server.watches[SLICES] = [break_off, go_on]
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(a="ready", b="ready", c="ready")
        assert server.count("list", SLICES) == 1
        assert server.params["watch", SLICES][1]["resourceVersion"] == "3"


async def test_a_line_is_a_line_however_it_is_cut_into_chunks_and_whatever_it_contains(
    server: FaultyServer, tmp_path: Path
) -> None:
    async def shred(request: Request) -> None:
        request.chunks()
        odd = slice_of("b", version=3, name="s2")
        odd["metadata"]["annotations"] = {"note": "a line\u0085that\u2028seems to end"}
        for byte in event_line("ADDED", odd):
            request.chunk(bytes([byte]))
        await hang(request)

    server.watches[SLICES] = [shred]
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(a="ready", b="ready")


async def html(request: Request) -> None:
    request.head(200, "Content-Length: 15", kind="text/html")
    request.raw(b"<h1>Sign in</h1>"[:15])


async def broken_json(request: Request) -> None:
    request.head(200, "Content-Length: 9")
    request.raw(b'{"items":')


async def no_version(request: Request) -> None:
    request.json(200, {"metadata": {}, "items": []})


async def short_body(request: Request) -> None:
    request.head(200, "Content-Length: 500")
    request.raw(b'{"items":[')


async def nothing(request: Request) -> None:
    pass


async def error_500(request: Request) -> None:
    request.status(500, "etcdserver: request timed out")


async def error_502(request: Request) -> None:
    request.head(502, "Content-Length: 3", kind="text/plain")
    request.raw(b"bad")


FAULTS: list[tuple[Answer, str]] = [
    (html, "nonsense"),
    (nothing, "unreachable"),
    (error_500, "refused"),
    (error_502, "refused"),
]
FAULTY_LISTS: list[tuple[Answer, str]] = [
    (short_body, "unreachable"),
    (broken_json, "nonsense"),
    (no_version, "nonsense"),
]


@pytest.mark.parametrize(
    ("where", "fault", "reason"),
    [(where, *fault) for where in ("list", "watch") for fault in FAULTS]
    + [("list", *fault) for fault in FAULTY_LISTS],
)
async def test_an_answer_that_is_no_good_leaves_the_last_state_in_force_and_stale(
    server: FaultyServer, tmp_path: Path, where: str, fault: Answer, reason: str
) -> None:
    async def release(request: Request) -> None:
        await let_go.wait()
        request.chunks()
        request.end()

    let_go = asyncio.Event()
    if where == "list":
        # The first watch ends without a word, which leads to a list.
        server.watches[SLICES] = [release, quiet]
        server.lists[SLICES] += [fault, fault, listing(9, slice_of("a", "b", version=9))]
    else:
        server.watches[SLICES] = [release, fault, fault, quiet]
        server.lists[SLICES] += [listing(3, slice_of("a")), fault, listing(9, slice_of("a", "b", version=9))]
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(a="ready")
        let_go.set()
        await stated.until(a="ready", b="ready")
        await until(lambda: not stated.is_stale)
        assert (SLICES, reason) in stated.failed
        # That a list succeeds is not enough to be heard again.
        assert [stale for stale, _ in groupby(listed.stale for listed in stated.lists)] == [False, True, False]
        assert stated.lists[1].endpoints == stated.lists[0].endpoints


@pytest.mark.parametrize(
    "line",
    [
        b"what?\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"RENAMED","object":{"metadata":{"name":"x","resourceVersion":"9"}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"new"}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"9"},"endpoints":"many"}}\n',
        b"[" * 5000 + b"\n",
    ],
)
async def test_a_line_that_is_no_event_leads_to_a_list_and_what_came_before_it_counts(
    server: FaultyServer, tmp_path: Path, line: bytes
) -> None:
    async def speak(request: Request) -> None:
        request.chunks()
        request.chunk(event_line("ADDED", slice_of("b", version=3, name="s2")) + line)
        await hang(request)

    server.watches[SLICES] = [speak, quiet]
    server.lists[SLICES].append(listing(9, slice_of("a", "b", "c", version=9)))
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(a="ready", b="ready", c="ready")
        assert (SLICES, "nonsense") in stated.relisted
        assert ["a", "b"] in [[pod.id for pod in listed.endpoints["gec"]] for listed in stated.lists]


async def test_an_endless_line_is_not_taken_in(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MAX_LINE", 100_000)

    async def flood(request: Request) -> None:
        request.chunks()
        while True:
            request.chunk(b"x" * 10_000)
            await request.writer.drain()

    server.watches[SLICES] = [flood, quiet]
    async with following(server.config(tmp_path / "config")) as stated:
        await until(lambda: (SLICES, "nonsense") in stated.relisted)


@pytest.mark.parametrize("word", ["BOOKMARK", "ADDED"])
async def test_a_store_that_was_put_back_amid_a_watch_is_listed_anew_at_once(
    server: FaultyServer, tmp_path: Path, word: str
) -> None:
    async def put_back(request: Request) -> None:
        request.chunks()
        request.event(word, slice_of("c", version=30, name="s3"))
        await hang(request)

    server.lists[SLICES] = [listing(50, slice_of("a")), listing(31, slice_of("b"))]
    server.watches[SLICES] = [put_back, quiet]
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(b="ready")
        assert (SLICES, "expired") in stated.relisted
        assert stated.failed == []


async def test_a_page_that_is_too_large_is_asked_for_with_fewer_objects(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def page(request: Request) -> None:
        first, many = int(request.params.get("continue", "0")), int(request.params["limit"])
        slices = [slice_of(pod, name=f"s{pod}") for pod in "abcdef"][first : first + many]
        rest = {"continue": str(first + many)} if first + many < 6 else {}
        request.json(200, {"metadata": {"resourceVersion": "2", **rest}, "items": slices})

    monkeypatch.setattr(api, "MAX_ANSWER", 1_000)
    server.lists[SLICES] = [page]
    async with following(server.config(tmp_path / "config"), page=8) as stated:
        await stated.until(**dict.fromkeys("abcdef", "ready"))
        limits = [params["limit"] for params in server.params["list", SLICES]]
        assert limits[0] == "8"
        assert set(limits[1:]) <= {"2", "1"}


async def test_one_endpoint_without_addresses_hides_no_other(server: FaultyServer, tmp_path: Path) -> None:
    broken = slice_of("b", name="s2")
    broken["endpoints"] = [{"addresses": None}, {}]
    server.lists[SLICES] = [listing(2, slice_of("a"), broken)]
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(a="ready")


async def test_410_in_the_stream_leads_to_a_list_that_is_compared_with_what_was_known(
    server: FaultyServer, tmp_path: Path
) -> None:
    async def expire(request: Request) -> None:
        request.chunks()
        request.event("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version: 2 (9)"})
        request.end()

    server.watches[SLICES] = [expire, quiet]
    server.lists[SLICES].append(listing(9, slice_of("a", version=2), slice_of("b", version=9, name="s2")))
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(a="ready", b="ready")
        assert stated.relisted.count((SLICES, "expired")) == 1
        assert stated.failed == []
        assert [[pod.id for pod in listed.endpoints["gec"]] for listed in stated.lists] == [["a"], ["a", "b"]]


async def test_a_server_that_always_says_410_is_not_run_down(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(course, "LONGEST_PAUSE", 10.0)

    async def expire(request: Request) -> None:
        request.status(410, "too old")

    server.watches[SLICES] = [expire]
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(a="ready")
        await asyncio.sleep(1.0)
        assert 2 <= server.count("list", SLICES) <= 6


async def test_a_server_that_asks_for_a_pause_gets_it(server: FaultyServer, tmp_path: Path) -> None:
    async def busy(request: Request) -> None:
        request.status(429, "too many requests", "Retry-After: 1")
        asked.append(asyncio.get_running_loop().time())

    async def at_last(request: Request) -> None:
        request.list(2, slice_of("a"))
        asked.append(asyncio.get_running_loop().time())

    asked: list[float] = []
    server.lists[SLICES] = [busy, at_last]
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(a="ready")
        assert asked[1] - asked[0] >= 1.0
        assert (SLICES, "refused") in stated.failed


async def test_nothing_is_stated_before_both_resources_are_known(server: FaultyServer, tmp_path: Path) -> None:
    async def late(request: Request) -> None:
        await let_go.wait()
        request.list(2, slice_of("a"))

    let_go = asyncio.Event()
    server.lists[SLICES] = [late]
    async with following(server.config(tmp_path / "config")) as stated:
        await until(lambda: server.count("watch", "services") == 1)
        assert stated.lists == []
        let_go.set()
        await stated.until(a="ready")
        assert len(stated.lists) == 1


async def test_a_list_of_a_store_with_smaller_revisions_is_believed(server: FaultyServer, tmp_path: Path) -> None:
    async def go_on(request: Request) -> None:
        request.chunks()
        request.event("ADDED", slice_of("c", version=2, name="s3"))
        await hang(request)

    server.lists[SLICES] = [listing(1000, slice_of("a", version=1000)), listing(1, slice_of("b", version=1))]
    server.watches[SLICES] = [error_500, go_on]
    async with following(server.config(tmp_path / "config")) as stated:
        await stated.until(b="ready", c="ready")
