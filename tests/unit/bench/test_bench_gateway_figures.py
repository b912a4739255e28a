"""From rounds of proxies to figures, tables and a picture."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.gateway.figures import Round, document, figures, table
from bench.gateway.peers import PEERS, Peer
from bench.gateway.plot import svg
from bench.gateway.pods import COMPLETIONS


def turn(name: str, rate: float, errors: int = 0) -> Round:
    return Round(name, rate, rate / 2, int(rate), errors)


ROUNDS = [
    turn("ours", 30_000),
    turn("other", 10_000),
    turn("other", 12_000, errors=2),
    turn("ours", 24_000),
    turn("ours", 26_000),
    turn("other", 90_000),
    Round("ours", 0.0, 5_000, 5_000, 0, added_ms=0.25),
    Round("ours", 0.0, 5_000, 5_000, 0, added_ms=9.0),
    Round("ours", 0.0, 5_000, 5_000, 0, added_ms=0.2),
    Round("other", 0.0, 2_000, 2_000, 1, added_ms=0.5),
]


def test_each_proxy_has_the_median_of_its_turns() -> None:
    found = figures(ROUNDS, "ours")
    assert found.requests_per_cpu_second == {"ours": 26_000, "other": 12_000}
    assert found.ratio == {"other": pytest.approx(26 / 12)}
    assert found.added_latency_ms == {"ours": 0.25, "other": 0.5}
    assert found.errors == {"ours": 0, "other": 3}


def test_the_document_has_the_fewest_pods_at_its_top_and_is_json() -> None:
    found = figures(ROUNDS, "ours")
    by_pods = {167: found, 4: found}
    made = json.loads(json.dumps(document(by_pods, {4: ROUNDS, 167: ROUNDS}, ["absent"], {"cores": 2})))
    assert made["pods"] == 4
    assert made["requests_per_cpu_second"] == {"ours": 26_000, "other": 12_000}
    assert made["ratio"] == {"other": 2.167}
    assert made["added_latency_ms"] == {"ours": 0.25, "other": 0.5}
    assert made["with_167_pods"]["ratio"] == {"other": 2.167}
    assert made["skipped"] == ["absent"]
    assert len(made["rounds"]["167"]) == len(ROUNDS)


def test_the_table_begins_with_the_cheapest() -> None:
    lines = table(4, figures(ROUNDS, "ours"))
    assert lines[2:] == ["| ours | 26,000 | 1 | 0.25 ms |", "| other | 12,000 | 2.17 | 0.50 ms |"]


def test_the_picture_has_a_bar_for_each_proxy_in_proportion_to_its_rate() -> None:
    root = ElementTree.fromstring(svg({4: figures(ROUNDS, "ours")}, "ours"))
    bars = [node.attrib for node in root if node.tag.endswith("rect")]
    assert [bar["class"] for bar in bars] == ["o", "b"]
    assert float(bars[0]["width"]) / float(bars[1]["width"]) == pytest.approx(26 / 12, rel=0.01)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_each_peer_is_told_its_port_and_every_pod(peer: Peer, tmp_path: Path) -> None:
    command = peer.command("program", 4000, [5001, 5002, 5003], tmp_path)
    told = " ".join(command) + "".join(file.read_text() for file in tmp_path.iterdir())
    assert command[0] == "program"
    assert all(str(port) in told for port in (4000, 5001, 5002, 5003))


def test_a_request_is_complete_and_asks_for_what_costs() -> None:
    head, _, body = COMPLETIONS.request().partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"Authorization: Bearer " in head
    assert b"X-Request-Deadline-Ms: " in head
    assert json.loads(body)["model"] == "gec-en"
