"""Files of sentences and references: which format, what they hold, and where they are wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copydesk.evaluation import Corpus, DataError, Example, Format, Source, own_corpus, read_corpus
from copydesk.evaluation.corpus import MOST_CHARACTERS
from copydesk.evaluation.jsonl import read_jsonl
from copydesk.evaluation.m2 import read_m2
from copydesk.evaluation.reading import read_clean


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(path: Path, text: str | bytes, **options: object) -> Corpus:
    return read_corpus(Source(written(path, text), **options))  # type: ignore[arg-type]


def test_plain_text_has_its_references_in_other_files(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a", "A cat.\nOne.\n"), written(tmp_path / "b", "The cat.\nOne.\n")
    corpus = read(tmp_path / "src", "Cat.\nOne.\n", references=(first, second))
    assert corpus.examples == (Example("Cat.", ("A cat.", "The cat.")), Example("One.", ("One.", "One.")))
    assert [example.is_clean for example in corpus.examples] == [False, True]


def test_columns_may_be_many_and_differ_in_number(tmp_path: Path) -> None:
    corpus = read(tmp_path / "data.txt", "she go\tshe goes\tshe went\nfine\tfine\t\r\n")
    assert corpus.examples == (Example("she go", ("she goes", "she went")), Example("fine", ("fine",)))


def test_json_lines_may_have_other_keys_and_empty_lines(tmp_path: Path) -> None:
    row = {"source": "a  b", "references": ["a b", "b"], "id": 7}
    corpus = read(tmp_path / "data", "\n" + json.dumps(row) + "\n\n")
    assert corpus.examples == (Example("a b", ("a b", "b")),)


def test_a_byte_order_mark_and_windows_lines_do_no_harm(tmp_path: Path) -> None:
    corpus = read(tmp_path / "data.tsv", b"\xef\xbb\xbfshe go\tshe goes\r\n")
    assert corpus.examples == (Example("she go", ("she goes",)),)


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    corpus = read(tmp_path / "data.tsv", "one\u2028two\x0bthree\tthree\n")
    assert corpus.examples == (Example("one two three", ("three",)),)


def test_tokens_are_found_out_and_can_be_forced(tmp_path: Path) -> None:
    text = "He do n't know .\tHe does n't know .\n"
    assert read(tmp_path / "a.tsv", text).tokenised
    assert not read(tmp_path / "a.tsv", text, tokenised=False).tokenised
    assert not read(tmp_path / "a.tsv", "He don't know.\tHe doesn't know.\n").tokenised


def test_a_corpus_in_tokens_is_asked_in_text_and_scored_in_tokens() -> None:
    corpus = Corpus("x", (Example("He do n't know .", ("He does n't know .",)),), tokenised=True)
    line = corpus.examples[0].source
    assert corpus.text(line) == "He don't know."
    assert corpus.answer(line, "He doesn't know.") == "He does n't know ."
    odd = "So , `` well '' ."
    assert corpus.answer(odd, corpus.text(odd)) == odd


BAD = [
    ("x.tsv", "a\tb\nno tab\n", 2, "no reference"),
    ("x.tsv", "a\tb\n\tb\n", 2, "is empty"),
    ("x.tsv", "", 0, "is empty"),
    ("x.tsv", b"a\tb\nc\t\xff\n", 2, "0xff is not UTF-8"),
    ("x.tsv", "a\t" + "b" * (MOST_CHARACTERS + 1), 1, "expected at most"),
    ("x.jsonl", '{"source": "a", "references": ["b"]}\n{"source": "a"}\n', 2, "references"),
    ("x.jsonl", '{"source": "a", "references": []}\n', 1, "references is empty"),
    ("x.jsonl", '{"source": "a", "references": [""]}\n', 1, "is empty"),
    ("x.jsonl", '{"source": 5, "references": ["a"]}\n', 1, "source"),
    ("x.jsonl", "[" * 100_000 + "\n", 1, ""),
    ("x.jsonl", "\n\n", 0, "no example"),
    ("x.m2", "", 0, "no sentence"),
    ("x.m2", "A 0 1|||R|||b|||REQUIRED|||-NONE-|||0\n", 1, "before the first sentence"),
    ("x.m2", "S a b\nA 0 3|||R|||b|||REQUIRED|||-NONE-|||0\n", 2, "not in a sentence of 2"),
    ("x.m2", "S a b\nA 1 0|||R|||b|||REQUIRED|||-NONE-|||0\n", 2, "not in a sentence"),
    ("x.m2", "S a b\nA -1 1|||R|||b|||REQUIRED|||-NONE-|||0\n", 2, "not in a sentence"),
    ("x.m2", "S a b\nA 0 x|||R|||b|||REQUIRED|||-NONE-|||0\n", 2, "is no span"),
    ("x.m2", "S a b\nA 0 1|||R|||b|||0\n", 2, "4 fields"),
    ("x.m2", "S a b\nwhat\n", 2, "S or A"),
    ("x.m2", "S \n", 1, "is empty"),
    ("x.m2", "S a\nA 0 1|||U||||||REQUIRED|||-NONE-|||0\n", 1, "leave nothing"),
    (
        "x.m2",
        "S a b c\nA 0 2|||R|||x|||REQUIRED|||-NONE-|||0\nA 1 2|||R|||y|||REQUIRED|||-NONE-|||0\n",
        3,
        "overlaps",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "line", "reason"), BAD)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, name: str, content: str | bytes, line: int, reason: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path / name, content)
    assert caught.value.line == line
    assert reason in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_files_of_different_length_are_told_where_the_shorter_ends(tmp_path: Path) -> None:
    reference = written(tmp_path / "ref", "a\n")
    with pytest.raises(DataError, match=r"ref:2: 1 lines, but .*src has 3"):
        read(tmp_path / "src", "a\nb\nc\n", references=(reference,))


def test_references_are_for_plain_text_alone_and_it_needs_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="plain text needs files of references"):
        read(tmp_path / "a.txt", "one line\nanother\n")
    with pytest.raises(DataError, match="m2 has its references"):
        read(tmp_path / "a.m2", "S a\n", references=(tmp_path / "b",), format=Format.M2)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        read_corpus(Source(tmp_path / "none.m2"))


M2 = """S She go home yesterday .
A 1 2|||R:VERB:TENSE|||went|||REQUIRED|||-NONE-|||0
A 1 2|||R:VERB:SVA|||goes||walks|||REQUIRED|||-NONE-|||1
A 3 4|||U:ADV|||-NONE-|||REQUIRED|||-NONE-|||1

S All is well .
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||0
A 0 1|||UNK|||All|||REQUIRED|||-NONE-|||1

S Nobody looked at this .
"""


def test_each_annotator_of_m2_is_a_reference(tmp_path: Path) -> None:
    corpus = read(tmp_path / "data", M2)
    assert corpus.tokenised
    first, second, third = corpus.examples
    assert first.references == ("She went home yesterday .", "She goes home .")
    assert second.is_clean
    assert len(second.references) == 2
    assert third == Example("Nobody looked at this .", ("Nobody looked at this .",))


def test_insertions_at_one_place_keep_their_order(tmp_path: Path) -> None:
    text = "S a b\n" + "".join(f"A 1 1|||M|||{w}|||REQUIRED|||-NONE-|||0\n" for w in ("x", "y z"))
    assert read(tmp_path / "data.m2", text).examples[0].references == ("a x y z b",)


TOKENS = st.lists(st.text(alphabet="abc", min_size=1, max_size=3), min_size=1, max_size=6)


@given(data=st.data(), source=TOKENS)
def test_disjoint_edits_are_applied_whatever_their_order(
    data: st.DataObject, source: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(source), max_size=len(source)))
    lines = [
        f"A {at} {at + 1}|||R:X|||new{at}|||REQUIRED|||-NONE-|||0" for at, kept in enumerate(keep) if not kept
    ]
    path = tmp_path_factory.getbasetemp() / "edits.m2"
    written(path, "\n".join([f"S {' '.join(source)}", *data.draw(st.permutations(lines))]))
    expected = [word if kept else f"new{at}" for at, (word, kept) in enumerate(zip(source, keep, strict=True))]
    assert read_m2(path)[0].references == (" ".join(expected),)


@given(content=st.binary(max_size=200))
def test_no_bytes_break_a_reader_but_by_its_own_error(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = written(tmp_path_factory.getbasetemp() / "noise", content)
    for form in (Format.M2, Format.TSV, Format.JSONL, Format.AUTO):
        try:
            examples = read_corpus(Source(path, format=form)).examples
        except DataError:
            continue
        assert all(example.source and all(example.references) for example in examples)


def test_clean_text_in_tokens_is_joined(tmp_path: Path) -> None:
    path = written(tmp_path / "clean", "It is n't far .\nWe walked , slowly .\n")
    assert read_clean(path) == ("It isn't far.", "We walked, slowly.")


def test_our_own_set_has_errors_and_clean_sentences_without_doubles(tmp_path: Path) -> None:
    examples = own_corpus().examples
    clean = [example for example in examples if example.is_clean]
    assert len(examples) - len(clean) >= 200
    assert len(clean) >= 200
    assert len({example.source for example in examples}) == len(examples)
    assert own_corpus().clean == tuple(example.references[0] for example in examples if not example.is_clean)
    assert own_corpus(7).examples == examples[:7]
    assert all(len(set(example.references)) == len(example.references) for example in examples)
    assert all(example.is_clean or example.source not in example.references for example in examples)
    path = written(tmp_path / "own.jsonl", json.dumps({"source": "x", "references": ["x"]}))
    assert read_jsonl(path)[0].is_clean


def test_a_file_without_an_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copydesk.evaluation.corpus.MOST_BYTES", 1 << 20)
    with pytest.raises(DataError, match="longer than 1 MiB"):
        read_corpus(Source(Path("/dev/zero"), format=Format.TSV))


def test_what_can_be_read_once_needs_its_format_named(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as file:
        file.write(b"she go\tshe goes\n")
    pipe = Path(f"/dev/fd/{read_end}")
    with pytest.raises(DataError, match="say how it is written by --format"):
        read_corpus(Source(pipe))
    assert read_corpus(Source(pipe, format=Format.TSV)).examples == (Example("she go", ("she goes",)),)
    os.close(read_end)


def test_edits_that_make_a_sentence_endless_are_refused(tmp_path: Path) -> None:
    edit = f"A 0 1|||X|||{'very ' * MOST_CHARACTERS}|||REQUIRED|||-NONE-|||0"
    with pytest.raises(DataError, match="expected at most"):
        read(tmp_path / "data.m2", f"S She go .\n{edit}\n")
