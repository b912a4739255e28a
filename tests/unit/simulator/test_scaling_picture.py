"""The picture of a contest: sound XML whatever the trace is called, and red where there was a violation."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from copydesk.simulator.builtin import BUILT_IN
from copydesk.simulator.contest import CLAIRVOYANT, OURS, Contest, Setting, contest
from copydesk.simulator.picture import picture
from copydesk.simulator.profile import ASSUMED_POD, Profile
from copydesk.simulator.run import Timeline
from copydesk.simulator.table import render
from copydesk.simulator.trace import Trace

SVG = "{http://www.w3.org/2000/svg}"


@cache
def played(name: str = "<burst> & co") -> tuple[Contest, dict[str, Timeline]]:
    trace = replace(BUILT_IN["burst"](1), name=name)
    return contest(trace, Profile.of(ASSUMED_POD), ("m", "h"), Setting(), lambda _: None)


def drawn(found: Contest, timelines: dict[str, Timeline]) -> ET.Element:
    return ET.fromstring(picture(found, timelines))


def bands(root: ET.Element) -> int:
    """Rectangles of violation, without the one of the legend."""
    return sum(rect.get("class") == "v" for rect in root.iter(f"{SVG}rect")) - 1


def test_a_trace_may_have_any_name() -> None:
    root = drawn(*played())
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert "<burst> & co: ten times the load for five minutes" in texts
    assert root.get("aria-label") == "<burst> & co: ten times the load for five minutes"


def test_each_policy_has_a_panel_with_its_figures() -> None:
    found, timelines = played()
    texts = ["".join(text.itertext()) for text in drawn(found, timelines).iter(f"{SVG}text")]
    for name, score in found.policies.items():
        assert name in texts
        bad = score.slo_violation_seconds
        assert (f"{bad:,} s of violation" if bad else "no violation") in texts


def test_violations_are_red_and_the_clairvoyant_has_none() -> None:
    found, timelines = played()
    assert bands(drawn(found, {OURS: timelines[OURS]})) >= 1
    assert bands(drawn(found, {CLAIRVOYANT: timelines[CLAIRVOYANT]})) == 0


def test_nothing_is_drawn_outside_the_picture() -> None:
    root = drawn(*played())
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    for path in root.iter(f"{SVG}path"):
        for corner in str(path.get("d")).replace("M", "L").rstrip("Z").split("L")[1:]:
            x, y = corner.split("h")[0].split("V")[0].split()
            assert 0.0 <= float(x) <= width
            assert 0.0 <= float(y) <= height


@pytest.mark.parametrize("seconds", [60, 200, 4000, 12_000])
def test_a_trace_of_any_length_can_be_drawn(seconds: int) -> None:
    trace = Trace("steady", "a steady load", np.full(seconds, 3000.0))
    root = drawn(*contest(trace, Profile.of(ASSUMED_POD), ("m", "h"), Setting(), lambda _: None))
    ticks = [text for text in root.iter(f"{SVG}text") if text.get("text-anchor") == "middle"]
    assert 2 <= len(ticks) <= 13


def test_the_table_says_how_ours_compares() -> None:
    found, _ = played()
    assert f"{found.hours_to_clairvoyant:.3f} times the pod hours" in render(found)
    assert "of the answers were." in render(found)
