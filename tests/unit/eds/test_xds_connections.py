"""How many connections fit into what the system allows a process to open."""

from __future__ import annotations

import resource

import pytest

from copydesk.eds.xds.connections import FEWEST, OTHER_FILES, SPARE_CONNECTIONS, connections

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "fits"),
    [
        (1024, 4096, 1000 + SPARE_CONNECTIONS + OTHER_FILES, 1000 + SPARE_CONNECTIONS),
        (1024, INFINITY, 1000 + SPARE_CONNECTIONS + OTHER_FILES, 1000 + SPARE_CONNECTIONS),
        (65_536, 65_536, 65_536, 1000 + SPARE_CONNECTIONS),
        (INFINITY, INFINITY, INFINITY, 1000 + SPARE_CONNECTIONS),
        (512, 1024, 1024, 1024 - OTHER_FILES),
        (64, 64, 64, FEWEST),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed_and_other_files_keep_their_room(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: int, fits: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limit: limits.append(limit))
    assert connections(1000) == fits
    assert limits[-1] == (allowed, hard)
