"""The compiled lane's forms of /v1/correct, against Python's: tasks from bodies, and bodies from pods' answers.

What it takes must be one sentence for Python too, as it stands; what it leaves to Python is not looked at.
"""

from __future__ import annotations

import json
from random import Random
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copydesk.common.tasks import CorrectedSentence, CorrectSentence, Outcome
from copydesk.gateway.limits import Limits
from copydesk.gateway.schemas import EditBody, SkippedBody, TextAnswer, Usage
from copydesk.gateway.validation import Task, parse_task
from copydesk.text import Segment, apply, correct_segments, segment

MODEL = "acme/grammar"
MOST = 500
INT32 = 2**31 - 1


def task(native: ModuleType, body: bytes, most: int = MOST) -> str | None:
    """The sentence that the lane takes from a body, after task and sentence were found to be Python's."""
    taken = native.correction_task(body, MODEL.encode(), most)
    if taken is None:
        return None
    payload, raw = taken
    sentence: str = raw.decode()
    assert parse_task(body, Limits(), MODEL) == Task((sentence,), True)
    assert segment(sentence, max_characters=most) == [Segment(0, len(sentence), sentence)]
    assert payload == msgspec.msgpack.encode(CorrectSentence(sentence))
    return sentence


def is_taken(native: ModuleType, text: str, most: int = MOST) -> bool:
    """Whether the lane takes a text, which must be right if it does."""
    sentence = task(native, msgspec.json.encode({"text": text}), most)
    assert sentence in (text, None)
    return sentence is not None


# Sentences

WORDS = [
    *("I", "he", "The", "don't", "well-known", "3.5", "2010", "U", "e.g.,", "a.com", '"quoted"', "and", "goes"),
    *("(in", "brackets)", "school,", "'em", "50%", "&", "-", "fine;", "he/she", "well...then", "me@a.com", "No"),
]
words = st.sampled_from(WORDS) | st.from_regex(r"[A-Za-z]{1,9},?", fullmatch=True)
plain_sentences = st.builds(
    lambda first, rest, last, end: " ".join([first, *rest, last]) + end,
    st.from_regex(r"[A-Za-z]{1,9}", fullmatch=True),
    st.lists(words, max_size=24),
    st.from_regex(r"[a-z]{1,9}", fullmatch=True),
    st.sampled_from(["", ".", "!", "?", "...", "?!", " ."]),
)

# What a sentence, an item of a list, or an address may begin or end with.
TRAPS = [
    *(". ", "? ", "! ", "... ", "?! ", '." ', '?"', ".' ", ".)", "; ", ": ", "...", "''", "``", "  ", "\r\n"),
    *("a) ", "b) ", "(a) ", "(B) ", "ii) ", "(iv) ", "1) ", "2) ", "1. ", "2. ", "10.) ", "a. ", "b. ", "(mild) "),
    *("- ", "* ", "# ", "> ", "[1]", "[ ] ", "Mr. ", "Dr.", "U.S. ", "e.g. ", "etc. ", "Yahoo!", "No. ", "J. "),
    *("p.m. ", "www.", "http://a", "mailto:", "a@b.c", *".!?'\"()`@ \t\n\x7f\x1c\x00é\u2019"),
]
fragments = st.lists(st.sampled_from([*WORDS, *TRAPS, " ", " ", " "]), max_size=12).map("".join)


@given(plain_sentences)
def test_every_plain_sentence_is_taken(native: ModuleType, text: str) -> None:
    assert is_taken(native, text)


@settings(max_examples=1_000)
@given(fragments)
def test_a_text_of_fragments_is_left_to_python_or_is_one_sentence(native: ModuleType, text: str) -> None:
    is_taken(native, text)


@given(plain_sentences, st.integers(0))
def test_a_sentence_with_something_put_in_is_left_to_python_or_is_one(
    native: ModuleType, sentence: str, seed: int
) -> None:
    chance = Random(seed)
    for _ in range(10):
        text = sentence
        for _ in range(chance.randint(1, 3)):
            place = chance.randint(0, len(text))
            put = chance.choice([chance.choice(TRAPS), chr(chance.randrange(32, 127))])
            text = text[:place] + put + text[place + chance.randint(0, 2) :]
        is_taken(native, text)


@pytest.mark.parametrize(
    "text",
    [
        "She go to school yesterday.",
        "i dont know what to do",
        "hi, how are you?",
        'He said "I am fine" and leaved',
        "The results (which we has seen before) are good!",
        "In 2010, 3.5 million peoples lived there.",
        "3 peoples was here",
        "well... i think so",
        "Its the student's book; isn't it?",
        "See e.g., the well-known case of example.com",
        '"They is here", he said',
        "Hello",
        "don't!",
        "a " * 249 + "a.",
    ],
)
def test_what_people_type_is_taken(native: ModuleType, text: str) -> None:
    assert is_taken(native, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Hello there. How are you?",
        "Really? yes",
        "Well... No",
        "the end.Next one",
        " leading",
        "trailing ",
        "two  spaces",
        "two\nlines",
        "a tab\there",
        "- an item",
        "# heading",
        "> quoted",
        "a) an item",
        "1) one and 2) two",
        "It has (a) One and (b) Two",
        "It is (mild) At first and (civic) At last",
        "He is ...not here",
        "123",
        "'",
        "www.x",
        "www..",
        "a@b.org",
        "mailto:a@b.org",
        "caf\u00e9 is open",
        "it\u2019s open",
        "a\x00b",
        "a " * 250 + "a",
    ],
)
def test_what_is_not_plain_is_left_to_python(native: ModuleType, text: str) -> None:
    assert not is_taken(native, text)


@pytest.mark.parametrize(("most", "taken"), [(0, False), (4, False), (5, True), (1_000, True)])
def test_a_sentence_has_no_more_characters_than_are_allowed(native: ModuleType, most: int, taken: bool) -> None:
    assert is_taken(native, "a cat", most) is taken


def test_what_is_cut_in_windows_is_left_to_python(native: ModuleType) -> None:
    assert is_taken(native, "word " * 199 + "words", 2_000)
    assert not is_taken(native, "word " * 200 + "words", 2_000)


# Bodies

LANGUAGES = ["auto", "en", "EN", "en-US", "en_gb", "AUTO", "en-x-12345678", "en-US-oxendict"]
layouts: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"separators": (",", ":")}, {}, {"indent": 2}, {"indent": "\t\r"}]
)


@st.composite
def plain_bodies(draw: st.DrawFn) -> bytes:
    """A body that the lane must take, as some client writes it down."""
    optional: dict[str, st.SearchStrategy[str]] = {"model": st.just(MODEL), "language": st.sampled_from(LANGUAGES)}
    fields = draw(st.fixed_dictionaries({"text": plain_sentences}, optional=optional))
    names = draw(st.permutations(list(fields)))
    text = json.dumps({name: fields[name] for name in names}, **draw(layouts))
    return (text.replace("/", "\\/") if draw(st.booleans()) else text).encode()


def damaged(raw: bytes, chance: Random, marks: bytes) -> bytes:
    """What is left of bytes after a few edits, which put in `marks` and other bytes."""
    left = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        place = chance.randint(0, len(left))
        put = bytes(
            chance.choice([chance.choice(marks), chance.randrange(256)]) for _ in range(chance.randint(0, 3))
        )
        left[place : place + chance.randint(0, 3)] = put
    return bytes(left)


@given(plain_bodies())
def test_every_plain_body_is_taken(native: ModuleType, body: bytes) -> None:
    assert task(native, body) == json.loads(body)["text"]


@given(plain_bodies(), st.integers(0))
def test_a_damaged_body_is_left_to_python_or_comes_to_its_task(native: ModuleType, body: bytes, seed: int) -> None:
    chance = Random(seed)
    for _ in range(20):
        task(native, damaged(body, chance, b'"\\{}[],:0-.eEnul \t\xc3\xed\xff\x00'))


def test_escapes_in_a_text_are_resolved(native: ModuleType) -> None:
    assert (
        task(native, b'{"text":"He said \\"no\\" to his\\/her \\u0066riend."}')
        == 'He said "no" to his/her friend.'
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"text":"a cat"',
        b'{"text":"a cat"}}',
        b'{"text":"a cat",}',
        b'{"text":"a cat","text":"a cat"}',
        b'{"text":"a cat","texts":["a cat"]}',
        b'{"texts":["a cat"]}',
        b'{"text":["a cat"]}',
        b'{"text":null}',
        b'{"text":"a cat","priority":"interactive"}',
        b'{"text":"a cat","priority":"batch"}',
        b'{"text":"a cat","model":"another"}',
        b'{"text":"a cat","model":null}',
        b'{"text":"a cat","language":"de"}',
        b'{"text":"a cat","language":"english"}',
        b'{"text":"a cat","language":"en-"}',
        b'{"text":"a cat","language":"en-123456789"}',
        b'{"text":"a cat","language":"e"}',
        b'{"text":"a cat","language":"en","language":"en"}',
        b'{"text":"a cat","unknown":1}',
        b'{"te\\u0078t":"a cat"}',
        b'{"text":"a cat\\n"}',
        b'{"text":"a cat\\ud800"}',
        b'\xef\xbb\xbf{"text":"a cat"}',
    ],
)
def test_bodies_that_are_not_plain_are_left_to_python(native: ModuleType, body: bytes) -> None:
    assert native.correction_task(body, MODEL.encode(), MOST) is None


# Answers

counts = st.integers(0, 200) | st.integers(0, INT32)
latencies = st.integers(0, 10**5) | st.integers(0, 10**12) | st.integers(0, 10**4).map(lambda value: value * 100)
pieces = st.sampled_from(
    ["a", "b", "c", "A", "a's", "don't", "'", '"', "\\", ".", ",", "-", "(", "_", "word", "longer_word"]
)
answer_texts = st.lists(pieces | st.just(" ") | st.just(" "), max_size=40).map("".join)
small_sentences = st.builds(
    lambda first, rest: " ".join([first, *rest]),
    st.sampled_from(["a", "A's", "don't"]),
    st.lists(
        st.sampled_from(["a", "b", "c", "a's", "don't", "b,", "-", '"a"', "(word", "longer_word"]), max_size=20
    ),
)


@st.composite
def altered(draw: st.DrawFn, sentence: str) -> str:
    """A sentence with some of its words replaced, put in, or left out."""
    left = sentence.split(" ")
    for _ in range(draw(st.integers(0, 5))):
        place = draw(st.integers(0, len(left)))
        left[place : place + draw(st.integers(0, 3))] = draw(st.lists(pieces, max_size=3))
    return " ".join(left)


def answer(
    native: ModuleType, sentence: str, payload: bytes, request_id: str = "3f2a", latency_us: int = 1_234
) -> bytes | None:
    """The lane's answer, after it was found to be Python's."""
    arguments = [sentence, request_id, '"acme/grammar"', '"sha256:1"']
    source, *heading = (argument.encode() for argument in arguments)
    body: bytes | None = native.correction_answer(payload, source, *heading, latency_us)
    if body is not None:
        corrected = msgspec.msgpack.decode(payload, type=CorrectedSentence)
        assert body == msgspec.json.encode(whole(sentence, corrected, request_id, latency_us))
    return body


def whole(sentence: str, done: CorrectedSentence, request_id: str, latency_us: int) -> TextAnswer:
    """What Python answers."""
    edits = []
    skipped = [SkippedBody(0, len(sentence), done.outcome.value)]
    if done.outcome is Outcome.CORRECTED:
        edits, skipped = correct_segments(sentence, segment(sentence), [done.text]), []
    tokens = done.prompt_tokens, done.completion_tokens
    return TextAnswer(
        request_id,
        MODEL,
        "sha256:1",
        apply(sentence, edits),
        [EditBody(edit.start, edit.end, edit.replacement) for edit in edits],
        skipped,
        Usage(*tokens, sum(tokens), 1),
        round(latency_us / 1000, 3),
    )


def packed(text: str, outcome: Outcome = Outcome.CORRECTED, prompt: int = 3, completion: int = 2) -> bytes:
    """What a pod sends."""
    return msgspec.msgpack.encode(CorrectedSentence(text, outcome, prompt, completion))


@given(small_sentences, st.data())
def test_corrections_come_to_the_bodies_that_python_makes(
    native: ModuleType, sentence: str, data: st.DataObject
) -> None:
    text = data.draw(altered(sentence) | answer_texts)
    assert answer(native, sentence, packed(text)) is not None


@given(plain_sentences, plain_sentences)
def test_unlike_sentences_come_to_the_bodies_that_python_makes(
    native: ModuleType, sentence: str, text: str
) -> None:
    answer(native, sentence, packed(text))


@given(st.sampled_from(Outcome), counts, counts, latencies, st.text(max_size=40))
def test_outcomes_and_numbers_come_to_the_bodies_that_python_makes(
    native: ModuleType, outcome: Outcome, prompt: int, completion: int, latency_us: int, request_id: str
) -> None:
    payload = packed("a cat", outcome, prompt, completion)
    assert answer(native, "a cat", payload, request_id, latency_us) is not None


@given(
    small_sentences, st.lists(st.none() | st.integers().filter(lambda n: abs(n) < 2**63) | st.text(), max_size=4)
)
def test_newer_pods_are_understood(native: ModuleType, sentence: str, more: list[Any]) -> None:
    payload = msgspec.msgpack.encode(["corrected", sentence, "corrected", 1, 2, *more])
    assert answer(native, sentence, payload) is not None


@given(small_sentences, answer_texts, st.integers(0))
def test_a_damaged_answer_is_left_to_python_or_comes_to_the_body_that_python_makes(
    native: ModuleType, sentence: str, text: str, seed: int
) -> None:
    payload, chance = packed(text), Random(seed)
    for _ in range(20):
        answer(native, sentence, damaged(payload, chance, b" \x00\x7f\x90\xa0\xc0\xc1\xcc\xd3\xd9\xdc\xe0\xff"))


@pytest.mark.parametrize("before", range(56, 72))
def test_words_are_told_apart_wherever_they_stand(native: ModuleType, before: int) -> None:
    sentence = "a" * before + " b's c-d 'e f'"
    for text in (sentence.replace("b's", "b'z"), sentence.replace("c", "c'"), sentence.replace(" ", "  ")):
        assert answer(native, sentence, packed(text)) is not None


@pytest.mark.parametrize("words", [64, 65])
def test_as_many_words_may_differ_as_a_machine_word_has_bits(native: ModuleType, words: int) -> None:
    sentence = " ".join(["x", *(f"a{index}" for index in range(words)), "y"])
    text = sentence.replace(f"a{words - 1} ", "b ").replace("a0 ", "b ").replace("a7 ", "")
    assert (answer(native, sentence, packed(text)) is not None) is (words == 64)


@pytest.mark.parametrize("text", ["caf\u00e9", "it\u2019s", "a\tb", "a\nb", "a\x00", "\x7f", "a " * 300])
def test_corrections_that_are_not_plain_are_left_to_python(native: ModuleType, text: str) -> None:
    assert answer(native, "a cat", packed(text)) is None


@pytest.mark.parametrize(
    "fields",
    [
        ["generated_text", "a", "corrected", 1, 2],
        ["corrected", "a", "corrected", 1],
        ["corrected", b"a", "corrected", 1, 2],
        ["corrected", "a", "correct", 1, 2],
        ["corrected", "a", None, 1, 2],
        ["corrected", "a", "corrected", True, 2],
        ["corrected", "a", "corrected", 1, "2"],
        "corrected",
    ],
)
def test_answers_that_are_none_are_left_to_python(native: ModuleType, fields: Any) -> None:
    payload = msgspec.msgpack.encode(fields)
    assert native.correction_answer(payload, b"a cat", b"1", b'"m"', b'"d"', 0) is None
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(payload, type=CorrectedSentence)


@pytest.mark.parametrize("outcome", Outcome)
def test_answers_that_are_no_utf8_are_left_to_python(native: ModuleType, outcome: Outcome) -> None:
    payload = packed("?", outcome).replace(b"\xa1?", b"\xa1\xff")
    assert native.correction_answer(payload, b"a cat", b"1", b'"m"', b'"d"', 0) is None


@pytest.mark.parametrize(("digest", "latency_us"), [(b"", 1), (b'"d"', -1), (b'"d"', 10**12 + 1)])
def test_without_weights_or_a_likely_latency_python_answers(
    native: ModuleType, digest: bytes, latency_us: int
) -> None:
    assert native.correction_answer(packed("a"), b"a", b"1", b'"m"', digest, latency_us) is None
