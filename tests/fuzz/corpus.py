"""Hostile input that is kept, one file a case, and how hard to look for more.

`corpus/<target>/` holds what once broke a reader, and one input for each class of refusal. A file's name is its
case's name in a test. `COPYDESK_FUZZ_EXAMPLES` sets how many examples each property is tried with: few without it,
so that `make test` stays quick, and many in `make fuzz`.
"""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

EXAMPLES = "COPYDESK_FUZZ_EXAMPLES"
_CORPUS = Path(__file__).parent / "corpus"
# How slowly examples are made says how busy the machine is; a fixture that outlives an example is meant to.
_SUPPRESSED = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large)


def cases(target: str) -> list[tuple[str, bytes]]:
    """Name and bytes of each kept input of a target, by name; ValueError where there is none: it is misspelt."""
    files = sorted(path for path in (_CORPUS / target).glob("*") if path.is_file())
    if not files:
        raise ValueError(f"no corpus for {target!r} in {_CORPUS}")
    return [(path.name, path.read_bytes()) for path in files]


def effort(default: int) -> settings:
    """Settings of a property that is tried `default` times, or as often as COPYDESK_FUZZ_EXAMPLES says."""
    given = os.environ.get(EXAMPLES, str(default))
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise ValueError(f"{EXAMPLES}: expected a number of examples from 1 up, got {given!r}")
    return settings(max_examples=int(given), deadline=None, suppress_health_check=_SUPPRESSED)
