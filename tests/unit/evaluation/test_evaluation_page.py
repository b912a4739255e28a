"""The report as a page: whole, with everything escaped, and able to stand alone."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from copydesk.evaluation import Corpus, EvaluationResult, Example, Options, evaluate
from copydesk.evaluation.page import html, marked
from tests.unit.evaluation.subjects import Scripted

NASTY = "<script>alert('1')</script> \"&amp; go"
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Checks that what is opened is closed, and keeps tags, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def result(*, alone: bool = False, same: bool = False) -> EvaluationResult:
    examples = tuple(Example(f"{NASTY} number {n} .", (f"{NASTY} went {n} .",)) for n in range(12))
    candidate = Scripted(lambda text: text.replace("number", "goes"), name="<b>candidate</b>", facts={"<i>": "&"})
    reference = Scripted(
        candidate.answer if same else lambda text: text.replace("number", "went"), name="reference"
    )
    data = Corpus("<data>", examples, clean=("<u>Clean</u> number.",))
    return evaluate(candidate, None if alone else reference, data, Options(edits="own", resamples=100))


@pytest.mark.parametrize(("alone", "same"), [(False, False), (True, False), (False, True)])
def test_the_page_is_well_formed_and_loads_nothing(alone: bool, same: bool) -> None:
    page = html(result(alone=alone, same=same), title="A <title>", facts=[("command", "a && b <c>")])
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    for _, attributes in reader.tags:
        assert not {"src", "href"} & attributes.keys()
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert "alert('1')" not in page


def test_all_text_is_escaped_and_still_to_be_read() -> None:
    reader = Reader()
    reader.feed(html(result(), title="t"))
    text = "".join(reader.text)
    assert NASTY in text
    assert "<b>candidate</b>" in text
    assert "<u>Clean</u>" in text


def test_what_changed_is_marked_word_by_word() -> None:
    assert marked("a <b> c", "a <d> c") == "a &lt;<del>b</del><ins>d</ins>&gt; c"
    assert marked("She go .", "She goes now .") == "She <del>go</del><ins>goes now</ins> ."
    assert marked("same", "same") == "same"


def test_changes_can_be_sorted_and_picked_by_type() -> None:
    reader = Reader()
    reader.feed(html(result(), title="t"))
    keys = [attributes["data-key"] for tag, attributes in reader.tags if tag == "button"]
    assert keys == ["number", "effect", "types", "source"]
    rows = [attributes for tag, attributes in reader.tags if tag == "tr" and "data-effect" in attributes]
    assert len(rows) == 13
    assert [float(row["data-effect"] or "nan") for row in rows[:12]] == sorted(
        float(row["data-effect"] or "nan") for row in rows[:12]
    )
    options = {attributes["value"] for tag, attributes in reader.tags if tag == "option"}
    assert {kind for row in rows for kind in (row["data-types"] or "").split()} <= options


def test_pictures_have_names_and_tables_have_captions() -> None:
    reader = Reader()
    reader.feed(html(result(), title="t"))
    drawn = [attributes for tag, attributes in reader.tags if tag == "svg"]
    assert len(drawn) == 2
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in drawn)
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("table") == tags.count("caption")
