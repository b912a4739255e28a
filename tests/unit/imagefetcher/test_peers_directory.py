"""Who has which sectors, as far as a node has been told, and who may ask it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.common.messages import BlocksReport
from copydesk.imagefetcher.peers.bitmap import count, holds, pack
from copydesk.imagefetcher.peers.directory import EXPIRY_S, MOST_BYTES, MOST_NODES, Peer, PeerDirectory
from copydesk.imagefetcher.peers.proof import proof, proves


def report(node: str = "other", held: bytes = b"\x05", sequence: int = 1, started_at: float = 1.0) -> BlocksReport:
    return BlocksReport(
        image="image", node=node, host="10.0.0.2", port=7070, started_at=started_at, sequence=sequence, held=held
    )


def watching() -> PeerDirectory:
    directory = PeerDirectory("me")
    directory.watch({"image"})
    return directory


@given(st.lists(st.booleans(), max_size=200))
def test_a_bitmap_says_what_was_packed_and_nothing_beyond(held: list[bool]) -> None:
    bitmap = pack(held)
    assert [holds(bitmap, number) for number in range(len(held))] == held
    assert not any(holds(bitmap, number) for number in range(len(held), len(held) + 20))
    assert len(bitmap) == -(-len(held) // 8)
    assert count([bitmap, b"", bitmap]) == sum(held)


def test_a_node_is_a_holder_of_what_it_says_until_it_falls_silent() -> None:
    directory = watching()
    assert directory.hear(report(), 100.0)
    assert directory.holders("image", 0, 100.0) == [Peer("other", "10.0.0.2", 7070)]
    assert directory.holders("image", 1, 100.0) == []
    assert directory.holders("image", 2, 100.0 + EXPIRY_S) == []
    assert directory.nodes("image", 100.0 + EXPIRY_S) == 0


def test_an_older_statement_does_not_replace_a_newer_one_but_a_new_start_does() -> None:
    directory = watching()
    directory.hear(report(held=b"\x01", sequence=5), 1.0)
    assert not directory.hear(report(held=b"\x02", sequence=5), 1.0)
    assert not directory.hear(report(held=b"\x02", sequence=4), 1.0)
    assert directory.holders("image", 0, 1.0)
    assert directory.hear(report(held=b"\x02", sequence=1, started_at=2.0), 1.0)
    assert not directory.holders("image", 0, 1.0)


def test_own_statements_and_those_about_other_images_are_ignored() -> None:
    directory = watching()
    assert not directory.hear(report(node="me"), 1.0)
    directory.watch({"another"})
    assert not directory.hear(report(), 1.0)
    assert directory.watch({"another", "image"}) == {"image"}


def test_a_flood_of_nodes_is_bounded_and_gone_ones_make_room() -> None:
    directory = watching()
    for number in range(MOST_NODES + 50):
        directory.hear(report(node=f"node-{number}"), 1.0)
    assert directory.nodes("image", 1.0) == MOST_NODES
    assert directory.hear(report(node="late"), 2.0 + EXPIRY_S)
    assert directory.nodes("image", 2.0 + EXPIRY_S) == 1


def test_a_proof_is_good_for_its_path_and_token_only() -> None:
    shown = proof("secret", "/v1/sectors/aa")
    assert proves("secret", "/v1/sectors/aa", shown)
    assert not proves("secret", "/v1/sectors/ab", shown)
    assert not proves("other", "/v1/sectors/aa", shown)
    assert not proves("secret", "/v1/sectors/aa", "")
    assert "secret" not in shown


@pytest.mark.parametrize(
    "change",
    [
        {"host": "169.254.169.254/latest/?x="},
        {"host": "user@internal"},
        {"host": ""},
        {"host": "h" * 300},
        {"port": 0},
        {"port": 65_536},
        {"port": -1},
        {"held": b"\xff" * (MOST_BYTES + 1)},
        {"node": "n" * 300},
    ],
)
def test_a_statement_that_names_no_address_or_too_much_is_not_heard(change: dict[str, object]) -> None:
    directory = watching()
    assert not directory.hear(msgspec.structs.replace(report(), **change), 0.0)
    assert directory.nodes("image", 0.0) == 0
    for host in ("10.0.0.2", "fe80::1", "node-7.cluster_local.internal"):
        assert directory.hear(msgspec.structs.replace(report(), host=host, node=host), 0.0)
