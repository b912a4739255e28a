"""What goes over the wire of a streamed answer, and when."""

from __future__ import annotations

import asyncio

import pytest

from copydesk.common.tasks import GeneratedText, Stopped
from copydesk.gateway import faults
from copydesk.gateway.openai.forms import ChatForm, CompletionForm, Ended, Heading
from copydesk.gateway.openai.streaming import StreamedReply
from tests.fixtures.wire import Wire

HEADING = Heading("id-1", 1_700_000_000, "gec-en")


def ended(text: str, reason: str | int | None = None) -> Ended:
    return Ended(GeneratedText(text, Stopped.STOP, reason, 3, 2), "sha256:fake")


@pytest.fixture
async def wire() -> Wire:
    return Wire()


@pytest.fixture
async def chat(wire: Wire) -> StreamedReply:
    return StreamedReply(wire, ChatForm(), HEADING, include_usage=False)


async def turn() -> None:
    """Let the loop do what is to be done in its next turn."""
    await asyncio.sleep(0)


async def test_what_comes_in_one_turn_of_the_loop_is_one_event(wire: Wire, chat: StreamedReply) -> None:
    for word in ("She ", "goes ", "to "):
        chat.part(0, word)
    assert wire.told == []
    await turn()
    assert wire.calls == ["begin", "write"]
    ((event,),) = wire.writes
    assert event["choices"] == [
        {
            "index": 0,
            "delta": {"content": "She goes to ", "role": "assistant"},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert (event["id"], event["object"], event["created"], event["model"]) == (
        "id-1",
        "chat.completion.chunk",
        1_700_000_000,
        "gec-en",
    )
    assert "usage" not in event


async def test_turns_are_events_and_only_the_first_tells_the_role(wire: Wire, chat: StreamedReply) -> None:
    chat.part(0, "She ")
    await turn()
    chat.part(0, "goes.")
    await turn()
    deltas = [event["choices"][0]["delta"] for (event,) in wire.writes]
    assert deltas == [{"content": "She ", "role": "assistant"}, {"content": "goes."}]


async def test_the_end_comes_with_the_last_text_and_done_behind_it(wire: Wire, chat: StreamedReply) -> None:
    chat.part(0, "She ")
    await turn()
    chat.part(0, "goes.")
    chat.finished(0, ended("She goes.", "END"))
    chat.complete()
    await turn()
    assert wire.told[-1] == ("end", None)
    (_first,), (last,), (done,) = wire.writes
    assert last["choices"] == [
        {
            "index": 0,
            "delta": {"content": "goes."},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": "END",
        }
    ]
    assert last["system_fingerprint"] == "sha256:fake"
    assert done == "[DONE]"


async def test_what_no_part_had_comes_with_the_end(wire: Wire, chat: StreamedReply) -> None:
    chat.part(0, "She ")
    chat.finished(0, ended("She goes."))
    chat.complete()
    assert wire.writes[0][0]["choices"][0]["delta"] == {"content": "She goes.", "role": "assistant"}


async def test_an_empty_answer_has_an_event_all_the_same(wire: Wire, chat: StreamedReply) -> None:
    chat.finished(0, ended(""))
    chat.complete()
    (choice,) = wire.writes[0][0]["choices"]
    assert choice["delta"] == {"content": "", "role": "assistant"}
    assert choice["finish_reason"] == "stop"


async def test_nothing_is_sent_twice_or_after_the_end(wire: Wire, chat: StreamedReply) -> None:
    chat.part(0, "She goes.")
    chat.finished(0, ended("She goes."))
    chat.complete()
    told = list(wire.told)
    for _ in range(3):
        await turn()
    assert wire.told == told
    assert wire.calls == ["begin", "write", "write", "end"]


async def test_the_texts_of_several_prompts_keep_their_indices(wire: Wire) -> None:
    reply = StreamedReply(wire, CompletionForm(), HEADING, include_usage=False)
    reply.part(1, "b")
    reply.part(0, "a")
    reply.part(1, "B")
    await turn()
    (events,) = wire.writes
    assert {event["choices"][0]["index"]: event["choices"][0]["text"] for event in events} == {0: "a", 1: "bB"}
    assert {event["object"] for event in events} == {"text_completion"}
    reply.finished(0, ended("a"))
    await turn()
    (finish,) = wire.writes[-1]
    assert (finish["choices"][0]["index"], finish["choices"][0]["finish_reason"]) == (0, "stop")


async def test_usage_is_null_until_an_event_without_choices_tells_the_sum(wire: Wire) -> None:
    reply = StreamedReply(wire, CompletionForm(), HEADING, include_usage=True)
    for index in range(2):
        reply.finished(index, ended("a"))
    reply.complete()
    *parts, last, done = wire.events
    assert [part["usage"] for part in parts] == [None, None]
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 6, "completion_tokens": 4, "total_tokens": 10}
    assert done == "[DONE]"


async def test_an_error_before_the_first_text_has_a_status_of_its_own(wire: Wire, chat: StreamedReply) -> None:
    chat.part(0, "She ")
    chat.failed(faults.overloaded(1000))
    await turn()
    assert wire.error.code == "overloaded"


async def test_an_error_after_the_first_text_is_the_last_event_and_done_does_not_come(
    wire: Wire, chat: StreamedReply
) -> None:
    chat.part(0, "She ")
    await turn()
    chat.part(0, "goes ")
    chat.failed(faults.deadline_exceeded())
    await turn()
    events = wire.events
    assert [event["choices"][0]["delta"]["content"] for event in events[:-1]] == ["She ", "goes "]
    assert events[-1]["error"]["code"] == "deadline_exceeded"
    assert set(events[-1]["error"]) == {"message", "type", "param", "code"}
    assert wire.told[-1] == ("end", None)


async def test_line_breaks_in_a_text_do_not_break_the_event(wire: Wire, chat: StreamedReply) -> None:
    text = "one\n\ntwo\r\n\u2028three\u0085"
    chat.part(0, text)
    await turn()
    assert wire.writes[0][0]["choices"][0]["delta"]["content"] == text
