"""Every credential that somebody shows, right or wrong, goes through a comparison that takes the same time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from copydesk.common.rpc.tokens import is_accepted
from copydesk.eds.xds.server import _shows
from copydesk.gateway.keys import KeyRing
from copydesk.imagefetcher.peers.proof import proof, proves

SECRET = "c0ffee-of-the-fleet"
PATH = "/v1/sectors/sha256:00"


def api_key(shown: str, tmp_path: Path) -> bool:
    (tmp_path / "keys").write_text(f"editor:{hashlib.sha256(SECRET.encode()).hexdigest()}\n")
    return KeyRing.load(tmp_path / "keys").name_of(shown) is not None


def xds_token(shown: str, tmp_path: Path) -> bool:
    context: Any = SimpleNamespace(invocation_metadata=lambda: (("authorization", f"Bearer {shown}"),))
    return _shows(SECRET, context)


CHECKS: dict[str, Callable[[str, Path], bool]] = {
    "an API key": api_key,
    "the token of RPC": lambda shown, _: is_accepted(f"older\n{SECRET}", shown),
    "the token of xDS": xds_token,
    "the proof of a peer": lambda shown, _: proves(SECRET, PATH, proof(shown, PATH)),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("shown", [SECRET, SECRET[:-1], "", "c0ffee-of-the-fleex", SECRET + "é"])
def test_a_credential_is_compared_in_constant_time_whether_it_is_right_or_not(
    check: Callable[[str, Path], bool], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []
    plain = hmac.compare_digest

    def counted(one: Any, other: Any) -> bool:
        compared.append((len(one), len(other)))
        return plain(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    assert check(shown, tmp_path) is (shown == SECRET)
    assert compared
