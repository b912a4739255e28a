"""Quantised models in the cache, which several runs may want at once."""

from __future__ import annotations

import fcntl
import queue
import threading
from pathlib import Path

import pytest

from copydesk.cli.onboarding.precision import Plan
from copydesk.cli.onboarding.search import Made
from copydesk.cli.onboarding.workshop import RealWorkshop, quantised_path
from copydesk.evaluation import Corpus, Example, Options
from tests.fixtures.tiny_model import write_tiny_model
from tests.unit.onboarding.found_things import CHOICE, DIGEST

INT8 = CHOICE.plans[1]


def test_a_plan_that_another_run_makes_is_waited_for_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPYDESK_CACHE_DIR", str(tmp_path / "cache"))
    source = write_tiny_model(tmp_path / "model")
    workshop = RealWorkshop(
        source,
        DIGEST,
        Corpus("c", (Example("a", ("a",)),)),
        Options(),
        exact="float32",
        circumstances="c",
        sentences=1,
    )
    monkeypatch.setattr(workshop, "_quantise", _never)
    out = quantised_path(DIGEST, INT8)
    out.parent.mkdir(parents=True)
    told: queue.Queue[str] = queue.Queue()
    made: list[Made] = []
    with (out.parent / f".{out.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: made.append(workshop.make(INT8, told.put)))
        thread.start()
        assert "another run makes it" in told.get(timeout=60)
        write_tiny_model(out)
    thread.join(60)
    assert [one.directory for one in made] == [str(out)]


def _never(plan: Plan, out: Path, tell: object) -> None:
    raise AssertionError(f"{plan.name} was made again, in {out}: {tell}")
