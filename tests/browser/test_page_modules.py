"""The page's decisions about text, pure functions, called in the browser with plain data."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from copydesk.text import apply, edits, segment
from tests.integration.gateway.conftest import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")

EMOJI = "\U0001f600"
SCIENTIST = "\U0001f469\u200d\U0001f52c"
WORDS = ["she", "goes", "go", EMOJI, SCIENTIST, "caf\u00e9", "e\u0301te", "in", "park", ",", "\n", "\ud55c\uae00"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    """One page for all: nothing that is called here leaves anything behind. Nor does it need a fleet."""
    async with AsyncExitStack() as stack:
        gateway = await Site(stack, tmp_path_factory.mktemp("gateway")).gateway("nats://127.0.0.1:1")
        page = await browser.new_page()
        await page.goto(gateway.url)
        yield page


async def call(page: Page, module: str, body: str, argument: Any = None) -> Any:
    """Evaluate `body`, the inside of a function of `module` and `argument`."""
    script = f"async (argument) => {{ const module = await import('/assets/{module}.js'); {body} }}"
    return await page.evaluate(script, argument)


async def cut(page: Page, *texts: str) -> list[list[str]]:
    body = "return argument.map((text) => module.cut(text).map((part) => part.text))"
    found: list[list[str]] = await call(page, "sentences", body, list(texts))
    return found


async def test_edits_of_the_api_are_applied_as_the_api_means_them(page: Page) -> None:
    chance = random.Random(4)
    cases = []
    for _ in range(300):
        source, target = (" ".join(chance.choices(WORDS, k=chance.randrange(1, 12))) for _ in range(2))
        found = [{"start": e.start, "end": e.end, "replacement": e.replacement} for e in edits(source, target)]
        assert apply(source, edits(source, target)) == target
        cases.append([source, found, target])
    body = "return argument.map(([source, edits]) => module.apply(source, module.inUnits(source, edits)))"
    assert await call(page, "edits", body, cases) == [target for _, _, target in cases]


async def test_a_change_is_found_and_edits_outside_of_it_move_along(page: Page) -> None:
    body = """
      const { difference, moved, apply } = module;
      return argument.map(([before, after, edit]) => {
        const change = difference(before, after);
        const inserted = after.slice(change.start, change.start + change.length);
        const rebuilt = before.slice(0, change.start) + inserted + before.slice(change.end);
        return [rebuilt, moved([edit], change).map(({ start, end }) => after.slice(start, end))];
      })"""
    edit = {"start": 4, "end": 6, "replacement": "goes"}
    cases = [
        ["She go out.", "She go out. Now", edit],
        ["She go out.", "Well, She go out.", edit],
        ["She go out.", "She walk out.", edit],
        ["She go out.", "She go out.", edit],
        ["aaaaaa go", "aaa go", {"start": 7, "end": 9, "replacement": "goes"}],
    ]
    found = await call(page, "edits", body, cases)
    assert [rebuilt for rebuilt, _ in found] == [after for _, after, _ in cases]
    assert [kept for _, kept in found] == [["go"], ["go"], [], ["go"], ["go"]]


async def test_sentences_are_cut_where_nobody_doubts_it(page: Page) -> None:
    assert await cut(
        page,
        "Hello there. How are you? Fine!",
        "I saw Mr. Smith. He lives in the U.S. Army base, e.g. Texas. J. R. R. Tolkien wrote.",
        "One line\nAnother line\n\nA third",
        "a line that was wrapped by a mail program because it is this long and then\nGoes on.",
        "it goes\non here",
        "\u4eca\u65e5\u306f\u3002\u660e\u65e5\u306f\u3002",
        "  \n\t\n 12 % \n---\n",
        "He said \"Stop!\" and left. \u201cWhy?\u201d",
    ) == [
        ["Hello there.", "How are you?", "Fine!"],
        ["I saw Mr. Smith.", "He lives in the U.S. Army base, e.g. Texas.", "J. R. R. Tolkien wrote."],
        ["One line", "Another line", "A third"],
        ["a line that was wrapped by a mail program because it is this long and then\nGoes on."],
        ["it goes\non here"],
        ["\u4eca\u65e5\u306f\u3002", "\u660e\u65e5\u306f\u3002"],
        [],
        ["He said \"Stop!\" and left.", "\u201cWhy?\u201d"],
    ]  # fmt: skip


async def test_the_page_cuts_nothing_that_the_server_would_leave_whole(page: Page) -> None:
    """A cut in the middle of what the server takes for a sentence would give the model two halves."""
    chance = random.Random(7)
    beginnings = [
        "She goes home",
        "Mr. Brown has $3.50",
        "it was late",
        "We saw a film",
        "No. 5 is open",
        "I met Dr. No",
    ]
    ends = [". ", "! ", "? ", ".\n", "\n", ".\n\n", "... ", ", ", " \u2013 "]
    texts = ["".join(chance.choice(beginnings) + chance.choice(ends) for _ in range(8)) for _ in range(150)]
    for text, parts in zip(texts, await cut(page, *texts), strict=True):
        position = 0
        starts = {found.start for found in segment(text)}
        for part in parts:
            position = text.index(part, position)
            assert position in starts, (text, part)
            position += len(part)


async def test_a_text_without_end_is_cut_at_a_space_and_never_within_a_character(page: Page) -> None:
    long = "word " * 1000
    parts, emoji = await cut(page, long, "a" + "\U0001f600" * 1999)
    assert "".join(part + " " for part in parts) == long
    assert max(map(len, parts)) <= 2000
    assert emoji == ["a" + "\U0001f600" * 999]  # of what follows nothing has a letter


async def test_all_parts_of_a_marked_text_are_the_text(page: Page) -> None:
    body = """
      const pair = (part) => [part.text, part.mark ?? ""];
      return argument.map(([text, suggestions]) => module.parts(text, suggestions).map(pair))"""

    def insertion(at: int) -> dict[str, Any]:
        return {"start": at, "end": at, "replacement": "x", "kind": "insert"}

    def deletion(start: int, end: int) -> dict[str, Any]:
        return {"start": start, "end": end, "replacement": "", "kind": "delete"}

    assert await call(
        page,
        "marks",
        body,
        [
            ["in park", [insertion(3)]],
            ["park", [insertion(0)]],
            ["a\nb", [insertion(2)]],
            ["a", [insertion(1)]],
            ["", [insertion(0)]],
            ["ab", [deletion(0, 1), insertion(1)]],
            ["\U0001f469\u200d\U0001f52c!", [insertion(5)]],
        ],
    ) == [
        [["in", ""], [" ", "insert-after"], ["park", ""]],
        [["p", "insert-before"], ["ark", ""]],
        [["a\n", ""], ["b", "insert-before"]],
        [["a", "insert-after"]],
        [],
        [["a", "delete"], ["b", "insert-before"]],
        [["\U0001f469\u200d\U0001f52c", "insert-after"], ["!", ""]],
    ]


async def test_a_draft_keeps_what_was_decided_whatever_is_typed_accepted_or_undone(page: Page) -> None:
    body = """
      const draft = new module.Draft();
      const shown = () => draft.suggestions.map(({ original, replacement }) => `${original}>${replacement}`);
      const apply = ({ start, end, replacement }) =>
        draft.edit(draft.text.slice(0, start) + replacement + draft.text.slice(end));
      const steps = [];
      const step = () => steps.push([draft.text, shown(), draft.rejected.length, draft.waiting()]);
      draft.edit("I goes and he go.");
      step();
      const first = { start: 2, end: 6, replacement: "go" };
      draft.answer("I goes and he go.", [first, { start: 14, end: 16, replacement: "goes" }]);
      draft.reject([draft.suggestions[0]]);
      step();
      draft.edit("I goes and he go. So");
      step();
      draft.edit("I goes and he got. So");
      step();
      draft.edit("I goes and he go. So");
      apply(draft.accept(draft.suggestions));
      step();
      draft.restore();
      step();
      return steps;"""
    assert await call(page, "draft", body) == [
        ["I goes and he go.", [], 0, ["I goes and he go."]],
        ["I goes and he go.", ["go>goes"], 1, []],
        ["I goes and he go. So", ["go>goes"], 1, ["So"]],
        ["I goes and he got. So", [], 1, ["I goes and he got.", "So"]],
        ["I goes and he goes. So", [], 1, ["So"]],
        ["I goes and he goes. So", ["goes>go"], 0, ["So"]],
    ]


async def test_a_decision_is_told_by_its_sizes_and_its_reason_without_them(page: Page) -> None:
    body = """
      const told = [[3, "add 2 to be 3: more"],
        [1, "remove 2 to be 1: less"], [3, "stay at 3: a: b"], [2, "odd: c"]];
      return told.map(([replicas, reason]) => module.resized(replicas, reason));"""
    assert await call(page, "series", body) == [
        "1 -> 3 pods: more",
        "3 -> 1 pod: less",
        "3 pods: a: b",
        "2 pods: odd: c",
    ]


async def test_the_charts_scale_is_round_and_its_lines_have_gaps(page: Page) -> None:
    body = """
      const { extended, line, nearest, recent, steps } = module;
      const part = (started_ms, at) => ({ started_ms, scale_decisions: [], at_ms: at, requests_per_s: at,
        refused_per_s: at, failed_per_s: at, in_flight: at, p50_ms: at, p99_ms: at });
      const two = extended(extended(null, part(1, [1000, 2000])), part(1, [2000, 3000]));
      return [
        [0, 0.3, 7, 12, 1234].map((most) => steps(most)),
        line([0, 1000, 2000, 3000, 20000], [1, 2, null, 4, 5], (x) => x / 1000, (y) => y),
        two.at_ms, extended(two, part(2, [9])).at_ms, recent(two, 1).p50_ms, nearest([0, 10, 20], 14),
      ];"""
    scales, path, at, anew, last, index = await call(page, "series", body)
    assert scales == [
        [0, 0.25, 0.5, 0.75, 1],
        [0, 0.25, 0.5, 0.75, 1],
        [0, 2, 4, 6, 8],
        [0, 5, 10, 15],
        [0, 500, 1000, 1500],
    ]
    assert path == "M0.0 1.0h0L1.0 2.0M3.0 4.0h0M20.0 5.0h0"
    assert (at, anew, last, index) == ([1000, 2000, 3000], [9], [2000, 3000], 1)
