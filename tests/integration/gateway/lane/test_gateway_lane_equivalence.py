"""The same traffic with and without the compiled lane: the same answers, and the same counts."""

from __future__ import annotations

import json
import random
import re
from types import ModuleType
from typing import Any

import pytest

from copydesk.common.rpc import Fault
from copydesk.gateway.keys import KeyLimits
from tests.integration.gateway.lane.house import Client, House, ask_for, house
from tests.integration.gateway.lane.test_gateway_lane_events import MINE, YOURS, ring
from tests.unit.gateway.conftest import eventually

LIMITS = KeyLimits(requests_per_second=0.001, burst=60)
FAULTS = {"refuse": 400, "overload": 429, "garbage": 502, "crash": 502, "unavailable": 503}

ODD_BODIES: list[dict[str, Any]] = [
    {"max_tokens": 2},
    {"max_tokens": 0},
    {"temperature": 0, "top_p": 0.5, "seed": 4},
    {"temperature": -1},
    {"stop": ["upon"]},
    {"n": 2},
    {"model": "gec-en"},
    {"model": "another"},
    {"stream": True},
    {"logprobs": 1},
    {"unknown": 1},
    {"stream": None, "echo": False, "user": "me"},
]
TEXTS = ["Once upon a time", "é ö 中 \U0001f600", 'a "quoted" \\ text\n', "one", "a " * 300]
PATHS = ["/v1/completions", "/v1/chat/completions", "/v1/correct"]
MADE_UP = (
    (rb"req-[0-9a-f]{24}", b"ID"),
    (rb'"created":\d+', b'"created":0'),
    (rb'"latency_ms":[0-9.]+', b'"latency_ms":0'),
    (rb"date: [^\r]*", b"date"),
    (rb"retry-after: \d+", b"retry-after"),
    (rb"content-length: \d+", b"content-length"),  # of which the digits of a time are a part
)


def traffic(seed: int) -> list[bytes]:
    """A hundred and twenty requests, most of them plain."""
    pick = random.Random(seed)
    found = []
    for number in range(120):
        path = pick.choice(PATHS)
        more = pick.choice(ODD_BODIES) if path != "/v1/correct" and pick.random() < 0.3 else {}
        lines = [pick.choice([MINE, MINE, MINE, YOURS])]
        if pick.random() < 0.5:
            lines.append(f"X-Request-Id: r{number}")
        if pick.random() < 0.1:
            lines.append(pick.choice(["X-Request-Deadline-Ms: soon", "X-Request-Priority: batch", "Accept: */*"]))
        text = pick.choice(TEXTS)
        if path == "/v1/correct":
            text = pick.choice(
                ["She go out.", "They go home now.", f"He go {number} times.", "", "123", "One. Two."]
            )
        found.append(ask_for(text, *lines, path=path, **more))
    return found


async def raw_answer(client: Client) -> bytes:
    top = await client.reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", top)
    if found is None:
        return top + await client.reader.readuntil(b"0\r\n\r\n")
    return top + await client.reader.readexactly(int(found[1]))


def essence(answer: bytes) -> bytes:
    """What does not differ from one run to the next."""
    for pattern, instead in MADE_UP:
        answer = re.sub(pattern, instead, answer)
    if b"chunked" in answer:
        answer = re.sub(rb"\r\n[0-9a-f]+\r\n", b"\r\n", answer)
    return answer


NOT_COUNTS = (
    "_seconds_sum",
    "_seconds_bucket",
    "_seconds_total",
    "_age_seconds",
    "lane_",
    "allowance",
    "eject",
    "latency",
    "pace",
    "weight",
)


def counts(at: House) -> dict[str, float]:
    """The samples that count events, and those of what is underway."""
    samples = [line.rpartition(" ") for line in at.gateway.render_metrics().splitlines() if line[0] != "#"]
    return {
        name: float(value)
        for name, _, value in samples
        if float(value) and not any(part in name for part in NOT_COUNTS)
    }


async def play(core: ModuleType | None, seed: int) -> tuple[list[bytes], dict[str, float], dict[str, int]]:
    answers: list[bytes] = []
    async with house(core, keys=ring("mine", "yours", mine=LIMITS), max_body_bytes=1024) as at:
        pick = random.Random(seed)
        at.pods["a"].fault = Fault("invalid_parameter", "no", parameter="top_p")
        clients = [await at.client() for _ in range(4)]
        for data in traffic(seed):
            at.behave(pick.choice([*["correct"] * 20, *FAULTS]))
            client = pick.choice(clients)
            client.send(data)
            answers.append(essence(await raw_answer(client)))
            at.gateway.fleet.pods["a"].ledger.refused(0.0)
            await eventually(lambda: at.gateway.fleet.eligible)  # one that could not work is asked again
        await at.idle()
        return answers, counts(at), at.endings()


@pytest.mark.parametrize("seed", [1, 2])
async def test_answers_and_counts_are_the_same(native: ModuleType, seed: int) -> None:
    lane, lane_counts, endings = await play(native, seed)
    python, python_counts, none = await play(None, seed)
    for mine, other in zip(lane, python, strict=True):
        assert mine == other
    assert lane_counts == python_counts
    assert (endings["answered"] > 30, endings["handed_back"] > 3, none) == (True, True, {})
    statuses = {answer[9:12] for answer in lane}
    assert {b"200", b"400", b"429", b"502", b"503"} <= statuses


async def test_a_whole_answer_is_the_same_byte_for_byte(native: ModuleType) -> None:
    """Lines in the same order, too."""
    raw: list[bytes] = []
    for core in (native, None):
        async with house(core) as at:
            client = await at.learned("X-Request-Id: a")
            client.send(ask_for("Once upon a time", "X-Request-Id: a"))
            raw.append(await raw_answer(client))
            assert json.loads(raw[-1].partition(b"\r\n\r\n")[2])["choices"][0]["text"] == "Once upon a time"
    assert essence(raw[0]) == essence(raw[1])
