"""Identical sentences: one on its way for all who wait, remembered for those who come later."""

from __future__ import annotations

import asyncio
import gc
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from copydesk.common.rpc import Priority
from copydesk.common.tasks import CorrectedSentence, CorrectSentence, Outcome
from copydesk.gateway import faults
from copydesk.gateway.cache import MemoryCache, RedisCache, SharedSentences
from copydesk.gateway.dispatch import Delivery, Dispatcher, OnDone
from copydesk.gateway.faults import ApiError
from tests.unit.gateway.conftest import Desk, eventually

DIGEST = "sha256:a"
ANSWER = msgspec.msgpack.encode(CorrectedSentence("She goes.", Outcome.CORRECTED, 3, 3))


def payload(text: str = "She go.") -> bytes:
    return msgspec.msgpack.encode(CorrectSentence(text))


def delivery(value: bytes = ANSWER, digest: str = DIGEST) -> Delivery:
    return Delivery(msgspec.Raw(value), digest)


@dataclass
class Sent:
    """A sentence that reached the dispatcher."""

    payload: bytes
    deadline: float
    on_done: OnDone
    priority: Priority
    on_chunk: object = None
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class Recorder:
    """A dispatcher that keeps what it is given, to be answered by the test."""

    def __init__(self) -> None:
        self.fleet = SimpleNamespace(digest=DIGEST)
        self.loop = asyncio.get_running_loop()
        self.sent: list[Sent] = []

    def submit(
        self,
        payload: bytes,
        deadline: float,
        on_done: OnDone,
        *,
        priority: Priority = Priority.INTERACTIVE,
        on_chunk: object = None,
    ) -> Sent:
        self.sent.append(Sent(payload, deadline, on_done, priority, on_chunk))
        return self.sent[-1]


@dataclass(eq=False)
class Asker:
    """One who asks for a sentence."""

    sentences: SharedSentences
    text: str = "She go."
    seconds: float = 60.0
    priority: Priority = Priority.INTERACTIVE
    told: list[Delivery | ApiError] = field(default_factory=list)
    handle: Any = None

    def ask(self) -> Asker:
        deadline = asyncio.get_running_loop().time() + self.seconds
        self.handle = self.sentences.submit(payload(self.text), deadline, self.told.append, priority=self.priority)
        assert self.told == []
        return self

    @property
    def codes(self) -> list[str]:
        return [outcome.code if isinstance(outcome, ApiError) else "ok" for outcome in self.told]


@pytest.fixture
async def dispatcher() -> Recorder:
    return Recorder()


def sharing(dispatcher: Recorder, **arguments: Any) -> SharedSentences:
    return SharedSentences(cast(Dispatcher, dispatcher), **arguments)


def counted(sentences: SharedSentences) -> dict[str, float]:
    return {
        "/".join([name, *(value for _, value in labels)]): value
        for name, _, _, samples in sentences.families()
        for labels, value in samples
    }


async def test_those_who_ask_for_the_same_are_told_by_one_answer(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    askers = [Asker(sentences).ask() for _ in range(5)]
    other = Asker(sentences, "He go.").ask()
    assert [sent.payload for sent in dispatcher.sent] == [payload(), payload("He go.")]
    dispatcher.sent[0].on_done(delivery())
    assert [asker.told for asker in askers] == [[delivery()]] * 5
    assert other.told == []
    assert counted(sentences)["shared_sentences_total"] == 4


async def test_a_failure_is_everybodys(dispatcher: Recorder) -> None:
    askers = [Asker(sentences).ask() for sentences in [sharing(dispatcher)] * 3]
    dispatcher.sent[0].on_done(faults.overloaded(100))
    assert [asker.codes for asker in askers] == [["overloaded"]] * 3


async def test_after_its_end_a_sentence_is_sent_anew(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    Asker(sentences).ask()
    dispatcher.sent[0].on_done(delivery())
    Asker(sentences).ask()
    assert len(dispatcher.sent) == 2


async def test_the_work_goes_on_until_the_last_who_waits_has_gone(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    first, second = Asker(sentences).ask(), Asker(sentences).ask()
    first.handle.cancel()
    first.handle.cancel()
    assert [sent.cancelled for sent in dispatcher.sent] == [False]
    second.handle.cancel()
    assert [sent.cancelled for sent in dispatcher.sent] == [True]
    third = Asker(sentences).ask()
    assert len(dispatcher.sent) == 2
    dispatcher.sent[1].on_done(delivery())
    assert (first.told, second.told, third.codes) == ([], [], ["ok"])


async def test_whoever_has_less_time_is_told_in_time(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    patient, hasty = Asker(sentences).ask(), Asker(sentences, seconds=0.02).ask()
    await eventually(lambda: hasty.told)
    assert (hasty.codes, patient.codes, dispatcher.sent[0].cancelled) == (["deadline_exceeded"], [], False)
    dispatcher.sent[0].on_done(delivery())
    assert (hasty.codes, patient.codes) == (["deadline_exceeded"], ["ok"])


async def test_whoever_has_more_time_than_the_first_gets_it(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    first, longer, longest = (Asker(sentences, seconds=seconds).ask() for seconds in (1, 2, 3))
    dispatcher.sent[0].on_done(faults.deadline_exceeded())
    assert (first.codes, longer.codes, longest.codes) == (["deadline_exceeded"], [], [])
    assert len(dispatcher.sent) == 2
    assert dispatcher.sent[1].deadline > dispatcher.sent[0].deadline + 1.5
    Asker(sentences).ask()
    assert len(dispatcher.sent) == 2
    dispatcher.sent[1].on_done(delivery())
    assert (longer.codes, longest.codes) == (["ok"], ["ok"])


async def test_a_deadline_that_has_passed_is_the_dispatchers_to_refuse(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    Asker(sentences).ask()
    Asker(sentences, seconds=-1).ask()
    assert len(dispatcher.sent) == 2


async def test_interactive_work_does_not_wait_for_batch_work_but_batch_work_does(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    batch = Asker(sentences, priority=Priority.BATCH).ask()
    interactive = Asker(sentences).ask()
    late = Asker(sentences, priority=Priority.BATCH).ask()
    assert [sent.priority for sent in dispatcher.sent] == [Priority.BATCH, Priority.INTERACTIVE]
    dispatcher.sent[0].on_done(delivery())
    assert (batch.codes, interactive.codes, late.codes) == (["ok"], [], [])
    Asker(sentences).ask()
    assert len(dispatcher.sent) == 2
    dispatcher.sent[1].on_done(delivery())
    assert (interactive.codes, late.codes) == (["ok"], ["ok"])


async def test_a_new_model_is_not_answered_for_by_the_old_one(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    Asker(sentences).ask()
    dispatcher.fleet.digest = "sha256:b"
    Asker(sentences).ask()
    assert len(dispatcher.sent) == 2


async def test_what_comes_in_parts_is_passed_on(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher, memory=MemoryCache(10_000))
    for _ in range(2):
        sentences.submit(payload(), dispatcher.loop.time() + 1, lambda _: None, on_chunk=lambda _: None)
    assert [sent.on_chunk is not None for sent in dispatcher.sent] == [True, True]


async def test_one_who_is_told_may_drop_others_and_ask_again(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)
    second = Asker(sentences)
    again = Asker(sentences)

    def on_first(_outcome: object) -> None:
        second.handle.cancel()
        again.ask()

    sentences.submit(payload(), dispatcher.loop.time() + 1, on_first)
    second.ask()
    third = Asker(sentences).ask()
    dispatcher.sent[0].on_done(delivery())
    assert (second.told, third.codes, again.told) == ([], ["ok"], [])
    dispatcher.sent[1].on_done(delivery())
    assert again.codes == ["ok"]


async def test_one_whose_callback_fails_does_not_keep_it_from_the_others(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher)

    def broken(_outcome: object) -> None:
        raise RuntimeError("broken")

    sentences.submit(payload(), dispatcher.loop.time() + 1, broken)
    other = Asker(sentences).ask()
    dispatcher.sent[0].on_done(delivery())
    assert other.codes == ["ok"]


async def test_an_answer_is_remembered_for_the_weights_that_gave_it(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher, memory=MemoryCache(10_000))
    Asker(sentences).ask()
    dispatcher.sent[0].on_done(delivery(digest="sha256:b"))
    assert Asker(sentences).ask().told == []
    assert len(dispatcher.sent) == 2
    dispatcher.fleet.digest = "sha256:b"
    asker = Asker(sentences).ask()
    await asyncio.sleep(0)
    assert asker.told == [delivery(digest="sha256:b")]
    assert len(dispatcher.sent) == 2
    found = counted(sentences)
    assert (found["cache_lookups_total/memory"], found["cache_lookups_total/miss"]) == (1, 2)
    assert (found["cache_entries"], found["cache_bytes"] > 0) == (1, True)


async def test_an_answer_that_is_none_and_an_error_are_not_remembered(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher, memory=MemoryCache(10_000))
    for outcome in (delivery(b"\xff"), delivery(msgspec.msgpack.encode({"a": 1})), faults.overloaded(1)):
        Asker(sentences).ask()
        dispatcher.sent[-1].on_done(outcome)
    assert len(dispatcher.sent) == 3
    assert counted(sentences)["cache_entries"] == 0


async def test_what_is_remembered_is_not_told_to_one_who_has_gone(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher, memory=MemoryCache(10_000))
    Asker(sentences).ask()
    dispatcher.sent[0].on_done(delivery())
    gone = Asker(sentences).ask()
    gone.handle.cancel()
    await asyncio.sleep(0)
    assert gone.told == []


async def test_sentences_may_be_sent_each_on_its_own(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher, share=False)
    askers = [Asker(sentences).ask() for _ in range(3)]
    assert len(dispatcher.sent) == 3
    dispatcher.sent[1].on_done(delivery())
    assert [asker.codes for asker in askers] == [[], ["ok"], []]


async def test_what_has_ended_is_gone_without_a_search_for_cycles(dispatcher: Recorder) -> None:
    sentences = sharing(dispatcher, memory=MemoryCache(10_000))
    while gc.collect():  # what other tests left, and what its finalizers leave
        pass
    for seconds in (1, 2, 3):
        Asker(sentences, seconds=seconds).ask()
    dispatcher.sent[0].on_done(faults.deadline_exceeded())
    dispatcher.sent[1].on_done(delivery())
    for seconds in (2, 1):
        Asker(sentences, "He go.", seconds).ask().handle.cancel()
    dispatcher.sent.clear()
    assert gc.collect() == 0


class FakeRedis:
    """What `RedisCache` offers, answered by the test."""

    def __init__(self) -> None:
        self.up = True
        self.errors = {"read": 0, "write": 0}
        self.asked: list[Any] = []
        self.written: dict[str, bytes] = {}

    def read(self, key: str, on_value: Any) -> None:
        self.asked.append(on_value)

    def write(self, key: str, value: bytes) -> None:
        self.written[key] = value


async def test_what_others_remember_is_asked_once_for_all_who_wait(dispatcher: Recorder) -> None:
    redis = FakeRedis()
    sentences = sharing(dispatcher, memory=MemoryCache(10_000), redis=cast(RedisCache, redis))
    first, second = Asker(sentences).ask(), Asker(sentences).ask()
    assert (len(redis.asked), dispatcher.sent) == (1, [])
    redis.asked[0](ANSWER)
    assert (first.told, second.told) == ([delivery()], [delivery()])
    third = Asker(sentences).ask()
    await asyncio.sleep(0)
    assert (third.codes, len(redis.asked)) == (["ok"], 1)
    assert counted(sentences)["cache_lookups_total/redis"] == 1


@pytest.mark.parametrize("found", [None, b"", b"\xff", msgspec.msgpack.encode(["corrected", 1])])
async def test_what_nobody_remembers_or_is_spoilt_is_sent_and_written(dispatcher: Recorder, found: bytes) -> None:
    redis = FakeRedis()
    sentences = sharing(dispatcher, redis=cast(RedisCache, redis))
    asker = Asker(sentences).ask()
    redis.asked[0](found)
    dispatcher.sent[0].on_done(delivery())
    assert (asker.codes, list(redis.written.values())) == (["ok"], [ANSWER])
    assert counted(sentences)["cache_errors_total/value"] == (found is not None)


async def test_one_who_leaves_before_redis_answers_sends_nothing(dispatcher: Recorder) -> None:
    redis = FakeRedis()
    sentences = sharing(dispatcher, redis=cast(RedisCache, redis))
    asker = Asker(sentences).ask()
    asker.handle.cancel()
    redis.asked[0](None)
    redis.asked[0](ANSWER)
    assert (asker.told, dispatcher.sent) == ([], [])


async def test_a_redis_that_is_lost_is_not_asked(dispatcher: Recorder) -> None:
    redis = FakeRedis()
    redis.up = False
    Asker(sharing(dispatcher, redis=cast(RedisCache, redis))).ask()
    assert (redis.asked, len(dispatcher.sent)) == ([], 1)


@pytest.mark.parametrize("seed", range(30))
async def test_in_whatever_order_things_happen_each_is_told_once_and_nothing_is_left_over(
    dispatcher: Recorder, seed: int
) -> None:
    rng = random.Random(seed)
    sentences = sharing(dispatcher)
    askers: list[Asker] = []
    gone: list[Asker] = []
    ended: set[int] = set()
    outcomes: list[Delivery | ApiError] = [delivery(), faults.overloaded(1), faults.deadline_exceeded()]
    for _ in range(300):
        step = rng.random()
        open_ = [i for i, sent in enumerate(dispatcher.sent) if i not in ended and not sent.cancelled]
        if step < 0.5:
            priority = rng.choice([Priority.INTERACTIVE, Priority.BATCH])
            text = rng.choice(["A go.", "B go.", "C go."])
            askers.append(Asker(sentences, text, rng.uniform(5, 50), priority).ask())
        elif step < 0.75 and askers:
            leaving = rng.choice(askers)
            if not leaving.told and leaving not in gone:
                gone.append(leaving)
            leaving.handle.cancel()
        elif open_:
            chosen = rng.choice(open_)
            ended.add(chosen)
            dispatcher.sent[chosen].on_done(rng.choice(outcomes))
        waiting = [asker for asker in askers if not asker.told and asker not in gone]
        open_ = [i for i, sent in enumerate(dispatcher.sent) if i not in ended and not sent.cancelled]
        assert bool(waiting) is bool(open_)
        assert len(open_) <= len(waiting)
    while open_ := [i for i, sent in enumerate(dispatcher.sent) if i not in ended and not sent.cancelled]:
        ended.add(open_[0])
        dispatcher.sent[open_[0]].on_done(delivery())
    assert all(len(asker.told) == (asker not in gone) for asker in askers)


async def test_a_text_that_repeats_itself_is_sent_once_to_a_real_pod_and_corrected_everywhere(desk: Desk) -> None:
    pod = await desk.pod("a", "slow")
    gateway = await desk.gateway(pod)
    done: list[Any] = []
    gateway.corrector.submit(["She go home."] * 20, asyncio.get_running_loop().time() + 10, done.append)
    await eventually(lambda: done)
    assert [text.corrected for text in done[0].texts] == ["She goes home."] * 20
    assert pod.received == ["She go home."]
    assert gateway.fleet.pods["a"].ledger.in_flight == 0
    assert "copydesk_gateway_shared_sentences_total 19" in gateway.render_metrics()
