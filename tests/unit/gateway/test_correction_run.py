"""From texts to corrected texts, over the fleet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from copydesk.common.tasks import CorrectedSentence, Outcome
from copydesk.gateway import correction
from copydesk.gateway.correction import SEGMENTS_A_TURN, Correction, CorrectionRun
from copydesk.gateway.faults import ApiError
from copydesk.gateway.service import Gateway
from copydesk.text import Segment, apply, segments
from tests.fixtures.fake_pod import refused
from tests.unit.gateway.conftest import Desk, eventually


class Submitted:
    """A request, and its outcome."""

    def __init__(self, gateway: Gateway, *texts: str, seconds: float = 10.0) -> None:
        loop = asyncio.get_running_loop()
        self.outcomes: list[Correction | ApiError] = []
        self._ended = asyncio.Event()
        self.run: CorrectionRun = gateway.corrector.submit(texts, loop.time() + seconds, self._on_done)
        assert self.outcomes == []

    def _on_done(self, outcome: Correction | ApiError) -> None:
        self.outcomes.append(outcome)
        self._ended.set()

    async def outcome(self) -> Correction | ApiError:
        async with asyncio.timeout(10):
            await self._ended.wait()
        assert len(self.outcomes) == 1
        return self.outcomes[0]

    async def correction(self) -> Correction:
        outcome = await self.outcome()
        assert isinstance(outcome, Correction)
        return outcome


async def test_a_text_is_cut_corrected_and_put_together_with_its_white_space(desk: Desk) -> None:
    gateway = await desk.gateway(await desk.pod("a"))
    source = "  She go to school.  He go too.\n\n\tThey go \U0001f600 home.\n"
    done = await Submitted(gateway, source).correction()
    text = done.texts[0]
    assert text.corrected == "  She goes to school.  He goes too.\n\n\tThey goes \U0001f600 home.\n"
    assert [(edit.start, edit.end, edit.replacement) for edit in text.edits] == [
        (6, 8, "goes"),
        (24, 26, "goes"),
        (39, 41, "goes"),
    ]
    assert apply(source, text.edits) == text.corrected
    assert (done.sentences, done.digest) == (3, "sha256:fake")
    assert done.prompt_tokens == done.completion_tokens == 11


async def test_each_text_gets_its_own_result_in_order(desk: Desk) -> None:
    gateway = await desk.gateway(await desk.pod("a"), await desk.pod("b"))
    done = await Submitted(gateway, "I go out.", "All is well.", "You go in.").correction()
    assert [text.corrected for text in done.texts] == ["I goes out.", "All is well.", "You goes in."]
    assert [len(text.edits) for text in done.texts] == [1, 0, 1]


async def test_what_is_no_sentence_is_skipped_and_not_sent(desk: Desk) -> None:
    pod = await desk.pod("a")
    gateway = await desk.gateway(pod)
    source = "12345\n\nWe go now."
    done = await Submitted(gateway, source).correction()
    assert [(part.start, part.end, part.reason) for part in done.texts[0].skipped] == [
        (0, 5, "nothing_to_correct")
    ]
    assert pod.received == ["We go now."]


async def test_a_text_with_nothing_to_send_is_answered_without_any_pod(desk: Desk) -> None:
    gateway = await desk.gateway()
    done = await Submitted(gateway, "12345").correction()
    assert (done.texts[0].corrected, done.texts[0].edits, done.sentences) == ("12345", [], 0)


@pytest.mark.parametrize("outcome", [Outcome.TOO_LONG, Outcome.TRUNCATED, Outcome.DISSIMILAR])
async def test_a_sentence_that_the_model_gives_back_is_left_alone_and_reported(
    desk: Desk, outcome: Outcome
) -> None:
    pod = await desk.pod("a")
    pod.answer = refused(outcome)
    gateway = await desk.gateway(pod)
    done = await Submitted(gateway, "She go now.").correction()
    assert (done.texts[0].corrected, done.texts[0].edits) == ("She go now.", [])
    assert [(part.start, part.end, part.reason) for part in done.texts[0].skipped] == [(0, 11, outcome.value)]


async def test_sentences_run_side_by_side_up_to_the_limit(desk: Desk) -> None:
    pod = await desk.pod("a", "slow")
    gateway = await desk.gateway(pod, request_concurrency=4)
    done = await Submitted(gateway, "\n\n".join(f"Number {i} go on." for i in range(10))).correction()
    assert done.sentences == 10
    assert pod.at_once == 4


async def test_the_first_failure_ends_the_request_and_cancels_the_rest(desk: Desk) -> None:
    pod = await desk.pod("a", "hang")
    gateway = await desk.gateway(pod)
    submitted = Submitted(gateway, "One go.\n\nTwo go.\n\nThree go.")
    await eventually(lambda: len(pod.received) == 3)
    pod.behaviour = "garbage"
    bad = Submitted(gateway, "Four go.")
    error = await bad.outcome()
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (502, "inference_failed")
    submitted.run.cancel()
    await eventually(lambda: len(pod.cancelled) == 3)
    assert submitted.outcomes == []
    assert gateway.fleet.pods["a"].ledger.in_flight == 0


async def test_one_sentence_out_of_time_fails_the_request_once(desk: Desk) -> None:
    pod = await desk.pod("a", "hang")
    gateway = await desk.gateway(pod)
    error = await Submitted(gateway, "One go.\n\nTwo go.", seconds=0.05).outcome()
    assert isinstance(error, ApiError)
    assert error.code == "deadline_exceeded"
    await eventually(lambda: len(pod.cancelled) == 2)
    assert gateway.fleet.pods["a"].ledger.in_flight == 0


@pytest.mark.parametrize("step", ["correct_segments", "apply"])
async def test_an_answer_that_cannot_be_assembled_is_an_error_not_a_hang(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(f"copydesk.gateway.correction.{step}", broken)
    gateway = await desk.gateway(await desk.pod("a"))
    error = await Submitted(gateway, "She go.").outcome()
    assert isinstance(error, ApiError)
    assert (error.status, error.code) == (500, "internal_error")


async def test_whatever_the_model_answers_the_edits_give_the_corrected_text(desk: Desk) -> None:
    rng = random.Random(11)
    alphabet = [
        "a",
        "go",
        "\U0001f600",
        "e\u0301",
        "\u200d",
        " ",
        "  ",
        "\n",
        ".",
        "!",
        "\ufb01",
        "\u0130",
        "-",
        "'",
    ]

    def scramble(text: str) -> CorrectedSentence:
        words = [word for word in text.split(" ") if rng.random() < 0.8]
        words.insert(rng.randrange(len(words) + 1), "".join(rng.choices(alphabet, k=rng.randrange(4))))
        return CorrectedSentence(" ".join(words), Outcome.CORRECTED, 1, 1)

    pod = await desk.pod("a")
    pod.answer = scramble
    gateway = await desk.gateway(pod)
    for _ in range(100):
        source = "".join(rng.choices(alphabet, k=rng.randrange(1, 60)))
        done = await Submitted(gateway, source).correction()
        assert apply(source, done.texts[0].edits) == done.texts[0].corrected


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> list[Segment]:
    """The segments cut so far."""
    found: list[Segment] = []

    def recorded(text: str, *, max_characters: int) -> Iterator[Segment]:
        for segment in segments(text, max_characters=max_characters):
            found.append(segment)
            yield segment

    monkeypatch.setattr(correction, "segments", recorded)
    return found


async def test_a_text_of_many_lines_is_cut_in_turns_with_others(desk: Desk, cut: list[Segment]) -> None:
    gateway = await desk.gateway(await desk.pod("a"))
    lines = ["a"] * (2 * SEGMENTS_A_TURN) + ["1"] * SEGMENTS_A_TURN + ["They go out."]
    submitted = Submitted(gateway, "\n".join(lines))
    seen = [len(cut)]
    while len(cut) < len(lines):
        await asyncio.sleep(0)
        seen.append(len(cut))
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= SEGMENTS_A_TURN
    done = await submitted.correction()
    assert done.texts[0].corrected == "\n".join([*lines[:-1], "They goes out."])
    assert done.sentences == 2 * SEGMENTS_A_TURN + 1


async def test_what_was_given_up_is_not_cut_any_further(desk: Desk, cut: list[Segment]) -> None:
    gateway = await desk.gateway(await desk.pod("a"))
    submitted = Submitted(gateway, "a\n" * 3 * SEGMENTS_A_TURN)
    submitted.run.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(cut) == SEGMENTS_A_TURN
