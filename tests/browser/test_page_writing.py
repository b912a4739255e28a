"""The writing page in a real browser: what is typed is corrected, and the writer decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.browser.conftest import Newsroom, founded
from tests.fixtures.nats import running_nats

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOURCE = "She go to school. He have a very very big dog in park."
EMOJI = "\U0001f600\U0001f469\u200d\U0001f52c"
CORRECTED = "She goes to school. He has a very big dog in the park."


async def fill(page: Page) -> None:
    await page.locator("#text").fill(SOURCE)
    await expect(page.locator("#list li")).to_have_count(4)


async def written(page: Page) -> str:
    return await page.locator("#text").input_value()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_room(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Newsroom]:
    """One fleet for all; what these tests are about is in their pages."""
    directory = tmp_path_factory.mktemp("room")
    with running_nats(directory) as nats:
        async with founded(directory, nats, browser) as room:
            await room.open_fleet()
            yield room


@pytest_asyncio.fixture(loop_scope="module")
async def newsroom(open_room: Newsroom) -> AsyncIterator[Newsroom]:
    """The open room with its pod as if it were new."""
    pod = open_room.pod
    pod.behaviour, pod.at_once = "correct", 0
    pod.received.clear()
    yield open_room
    await open_room.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(newsroom: Newsroom) -> Page:
    return await newsroom.page()


async def test_typing_brings_suggestions_that_are_marked_by_kind(page: Page) -> None:
    await page.keyboard.type(SOURCE)
    await expect(page.locator("#status")).to_have_text("4 suggestions.")
    marks = page.locator("#layer .mark")
    assert [await mark.get_attribute("class") for mark in await marks.all()] == [
        "mark replace", "mark replace", "mark delete", "mark insert-after",
    ]  # fmt: skip
    assert (await marks.all_inner_texts())[:2] == ["go", "have"]
    assert await page.locator("#layer").inner_text() == SOURCE + "\n"
    await expect(page.locator("#latency")).to_contain_text("ms")


PLACES = """() => {
  const layer = document.getElementById("layer");
  const walker = document.createTreeWalker(layer, NodeFilter.SHOW_TEXT);
  const places = [];
  while (walker.nextNode()) {
    for (let at = 0; at < walker.currentNode.length; at += 1) {
      const range = document.createRange();
      range.setStart(walker.currentNode, at);
      range.setEnd(walker.currentNode, at + 1);
      const { x, y } = range.getBoundingClientRect();
      places.push([x, y]);
    }
  }
  return places;
}"""


async def test_no_mark_moves_a_character_and_the_text_lies_on_its_layer(page: Page) -> None:
    text = (f"{EMOJI} and I go, fi\ufb01x: " + SOURCE + " ") * 8
    await page.locator("#text").fill(text)
    await expect(page.locator("#layer .mark")).to_have_count(40)
    marked = await page.evaluate(PLACES)
    await page.evaluate("document.getElementById('layer').textContent += ''")
    assert await page.locator("#layer .mark").count() == 0
    plain = await page.evaluate(PLACES)
    assert len(marked) == len(plain) == len(text.encode("utf-16-le")) // 2 + 1
    apart = max(max(abs(a - b) for a, b in zip(*pair, strict=True)) for pair in zip(marked, plain, strict=True))
    assert apart < 0.75, "a mark moves the text by a pixel"
    differences = await page.evaluate(
        """() => {
          const [text, layer] = ["text", "layer"].map((id) => document.getElementById(id));
          return [text.scrollHeight - text.clientHeight, text.scrollTop, text.offsetHeight - layer.offsetHeight,
                  text.clientWidth - layer.clientWidth, text.offsetLeft - layer.offsetLeft];
        }"""
    )
    assert differences == [0, 0, 0, 0, 0]


async def test_one_is_accepted_and_the_others_stay(page: Page) -> None:
    await fill(page)
    await page.get_by_role("button", name="Accept: replace “go” by “goes”").click()
    assert await written(page) == SOURCE.replace("go to", "goes to")
    await expect(page.locator("#status")).to_have_text("3 suggestions.")


async def test_all_are_accepted_at_once_and_one_undo_takes_them_back(page: Page) -> None:
    await fill(page)
    await page.get_by_role("button", name="Accept all").click()
    assert await written(page) == CORRECTED
    await expect(page.locator("#status")).to_have_text("Nothing to correct.")
    await page.keyboard.press("Control+z")
    assert await written(page) == SOURCE
    await expect(page.locator("#status")).to_have_text("4 suggestions.")


async def test_what_is_rejected_stays_so_while_one_writes_on_and_can_be_restored(page: Page) -> None:
    await fill(page)
    await page.get_by_role("button", name="Reject: replace “go” by “goes”").click()
    await expect(page.locator("#status")).to_have_text("3 suggestions.")
    await page.locator("#text").press("Control+Home")
    await page.keyboard.type("Well, I go. ")
    await expect(page.locator("#status")).to_have_text("4 suggestions.")
    await page.get_by_role("button", name="Accept all").click()
    assert await written(page) == "Well, I goes. " + CORRECTED.replace("goes", "go")
    await page.get_by_role("button", name="Restore 1 rejected").click()
    await expect(page.locator("#list li")).to_have_count(1)
    await expect(page.locator("#list ins")).to_have_text(["goes"])


async def test_the_keyboard_alone_does_it_all(page: Page) -> None:
    await page.keyboard.type(SOURCE)
    await expect(page.locator("#status")).to_have_text("4 suggestions.")
    await page.keyboard.press("Control+Home")
    await page.keyboard.press("F8")
    await expect(page.locator("#told")).to_have_text("1 of 4: replace “go” by “goes”.")
    await expect(page.locator("#list [aria-current=true]")).to_contain_text("goes")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("#told")).to_have_text("1 of 3: replace “have” by “has”.")
    await page.keyboard.press("Escape")
    await expect(page.locator("#told")).to_contain_text("1 of 2: delete “very”")
    await page.keyboard.press("F8")
    await expect(page.locator("#told")).to_have_text("2 of 2: insert “the”.")
    await page.keyboard.press("Shift+F8")
    await page.keyboard.press("Control+Shift+Enter")
    assert await written(page) == CORRECTED.replace("has", "have")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.id") == "copy"  # nothing is left to accept
    await page.keyboard.press("Enter")
    await expect(page.locator("#told")).to_have_text("Copied.")
    assert await page.evaluate("navigator.clipboard.readText()") == CORRECTED.replace("has", "have")


async def test_the_list_works_by_keyboard_and_keeps_the_focus(page: Page) -> None:
    await fill(page)
    await page.get_by_role("button", name="Accept: replace “go” by “goes”").focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    assert await written(page) == SOURCE.replace("have", "has")
    await expect(page.get_by_role("button", name="Accept: delete “very”")).to_be_focused()
    for _ in range(3):
        await page.keyboard.press("Enter")
    assert await written(page) == CORRECTED
    await expect(page.locator("#text")).to_be_focused()


async def test_the_focus_can_be_seen_and_every_control_has_a_name(page: Page) -> None:
    await fill(page)
    await page.evaluate(
        "for (const id of ['trouble', 'access', 'left']) document.getElementById(id).hidden = false"
    )
    nameless = await page.evaluate(
        """() => [...document.querySelectorAll("button, input, textarea, select, a, summary")].filter((control) =>
          !(control.getAttribute("aria-label") ?? control.textContent).trim() && !control.labels?.length)
          .map((control) => control.outerHTML)"""
    )
    assert [html for html in nameless if 'id="restore"' not in html] == []  # hidden until it has one
    await page.keyboard.press("Tab")
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    assert await page.evaluate("document.documentElement.lang && document.querySelectorAll('h1').length") == 1


async def test_offsets_are_right_behind_emoji_and_in_text_pasted_with_carriage_returns(page: Page) -> None:
    pasted = f"{EMOJI} She go out.\r\n\r\nHe have\ttime.\r\n"
    await page.evaluate("(text) => navigator.clipboard.writeText(text)", pasted)
    await page.locator("#text").press("Control+v")
    await expect(page.locator("#layer .mark")).to_have_text(["go", "have"])
    await page.get_by_role("button", name="Accept all").click()
    assert await written(page) == f"{EMOJI} She goes out.\n\nHe has\ttime.\n"


async def test_what_an_input_method_composes_is_sent_when_it_is_done(newsroom: Newsroom, page: Page) -> None:
    session = await page.context.new_cdp_session(page)
    await page.locator("#text").focus()
    await session.send("Input.imeSetComposition", {"text": "She go", "selectionStart": 6, "selectionEnd": 6})
    await page.wait_for_timeout(600)  # longer than the pause after which anything else is sent
    assert newsroom.pod.received == []
    await session.send("Input.insertText", {"text": "She go home."})
    await expect(page.locator("#layer .mark")).to_have_text(["go"])
    assert newsroom.pod.received == ["She go home."]


async def test_only_the_sentence_that_changed_is_sent_again(newsroom: Newsroom, page: Page) -> None:
    await page.locator("#text").fill("One is here. Two is here. Three is here.")
    await expect(page.locator("#status")).to_have_text("Nothing to correct.")
    assert sorted(newsroom.pod.received) == ["One is here.", "Three is here.", "Two is here."]
    newsroom.pod.received.clear()
    await page.locator("#text").press("Control+End")
    await page.keyboard.type(" They go.")
    await expect(page.locator("#layer .mark")).to_have_text(["go"])
    assert newsroom.pod.received == ["They go."]


async def test_a_sentence_that_is_no_longer_there_is_given_up(newsroom: Newsroom, page: Page) -> None:
    newsroom.pod.behaviour = "hang"
    await page.locator("#text").fill("She go.")
    async with page.expect_event("requestfailed", timeout=10_000):
        await expect(page.locator("#status")).to_have_text("Correcting: 0 of 1 sentence done.")
        newsroom.pod.behaviour = "correct"
        await page.locator("#text").fill("He have.")
    await expect(page.locator("#layer .mark")).to_have_text(["have"])


async def test_a_long_text_comes_sentence_by_sentence_a_few_at_a_time(newsroom: Newsroom, page: Page) -> None:
    newsroom.pod.behaviour = "slow"
    await page.locator("#text").fill(" ".join(f"Number {number} go home." for number in range(40)))
    seen: set[int] = set()
    while (count := await page.locator("#layer .mark").count()) < 40:
        seen.add(count)
        await page.wait_for_timeout(40)
    assert len(seen) > 3
    assert 1 < newsroom.pod.at_once <= 5


async def test_markup_that_is_typed_is_text(page: Page) -> None:
    await page.locator("#text").fill("She go <img src=x onerror=alert(1)> & <b>home</b>.")
    await expect(page.locator("#layer .mark")).to_have_text(["go"])
    assert await page.locator("#layer img, #list img, #layer b").count() == 0


async def test_a_phone_shows_it_without_scrolling_sideways_and_with_room_for_fingers(newsroom: Newsroom) -> None:
    page = await newsroom.page(viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    await page.locator("#text").fill(SOURCE + " Anotherwordthatisfartoolongtofitintoonelineofaphone" * 3)
    await expect(page.locator("#list li")).to_have_count(4)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    for button in await page.locator("button:visible").all():
        box = await button.bounding_box()
        assert box is not None
        assert box["height"] >= 36
    await page.get_by_role("button", name="Accept: replace “go” by “goes”").tap()
    await expect(page.locator("#status")).to_have_text("3 suggestions.")
    assert (await written(page)).startswith("She goes")
    assert await page.locator("#text").get_attribute("inputmode") is None


async def test_the_focus_stays_on_its_suggestion_when_another_comes_before_it(page: Page) -> None:
    may_pass = asyncio.Event()

    async def hold(route: Route) -> None:
        if "They" in (route.request.post_data or ""):
            await may_pass.wait()
        await route.continue_()

    await page.route("**/v1/correct", hold)
    await page.locator("#text").fill("They go. He have time.")
    await page.get_by_role("button", name="Accept: replace “have” by “has”").focus()
    may_pass.set()
    await expect(page.locator("#list li")).to_have_count(2)
    await page.keyboard.press("Enter")
    assert await written(page) == "They go. He has time."


async def test_a_book_is_accepted_at_once_and_the_page_says_that_it_cannot_be_undone(page: Page) -> None:
    lines = "\n\n".join(["She go home."] * 600)
    await page.evaluate(
        """(lines) => {
          const text = document.getElementById("text");
          text.value = lines;
          text.dispatchEvent(new InputEvent("input"));
        }""",
        lines,
    )
    await expect(page.locator("#status")).to_have_text("600 suggestions.")
    await expect(page.locator("#list li")).to_have_count(200)
    await expect(page.locator("#more")).to_have_text("And 400 more after these.")
    await page.get_by_role("button", name="Accept all").click()
    assert await written(page) == lines.replace("go", "goes")
    await expect(page.locator("#told")).to_have_text("Accepted. So much at once cannot be undone.")
