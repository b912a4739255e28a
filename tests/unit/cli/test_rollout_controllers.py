"""Controllers of one rollout: two at once, one that was away, and what others say on the rollout's subjects."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from copydesk.cli.rollout.conductor import Terms
from copydesk.cli.rollout.controller import Controller, Ending, Wanted
from copydesk.cli.rollout.roster import VersionError
from copydesk.common.messages import RolloutPlan, RolloutReport, RolloutStage
from copydesk.routing import Policy
from tests.fixtures.until import until
from tests.unit.cli.test_model_rollout import NEW, OLD, load, report, totals

PERIOD = 0.01
TERMS = Terms(Policy(seconds=600.0), slo_ms=1000.0, shadow_share=0.5, expires_after_s=600.0)
WANTED = Wanted(TERMS, candidate=NEW[:12])


class Exchange:
    """A bus for several controllers; what is published is kept, and comes back unless it is `cut`."""

    def __init__(self) -> None:
        self.callbacks: list[tuple[type, Callable[[Any], None]]] = []
        self.plans: list[RolloutPlan] = []
        self.cut = False

    async def subscribe(self, _subject: str, type_: type, callback: Callable[[Any], None]) -> None:
        self.callbacks.append((type_, callback))

    def publish(self, _subject: str, message: msgspec.Struct) -> None:
        assert isinstance(message, RolloutPlan)
        self.plans.append(message)
        if not self.cut:
            asyncio.get_running_loop().call_soon(self.say, message)

    def say(self, message: msgspec.Struct) -> None:
        """Have everybody hear it."""
        for type_, callback in self.callbacks:
            if isinstance(message, type_):
                callback(message)

    def pods(self) -> None:
        """Have a pod of each version say that it is ready."""
        self.say(load("p1", OLD))
        self.say(load("p2", NEW))

    def controller(self, wanted: Wanted = WANTED, name: str = "r1") -> Controller:
        return Controller(self, wanted, lambda _: None, name=name, period=PERIOD)  # type: ignore[arg-type]


async def begun(bus: Exchange, *controllers: Controller) -> list[asyncio.Task[Ending]]:
    """Start controllers in one moment, and wait until something is said."""
    tasks = [asyncio.create_task(controller.run()) for controller in controllers]
    await asyncio.sleep(0)
    bus.pods()
    await until(lambda: len(bus.plans) > 2)
    return tasks


async def two_begun(bus: Exchange) -> list[asyncio.Task[Ending]]:
    """Start two, "one" and "two", that hear of each other only once both have begun."""
    bus.cut = True
    tasks = await begun(bus, bus.controller(name="one"), bus.controller(name="two"))
    await until(lambda: {plan.rollout for plan in bus.plans} == {"one", "two"})
    bus.cut = False
    return tasks


def quiet(bus: Exchange) -> Callable[[], bool]:
    """Return what says whether nothing has been said for a hundred looks."""
    seen: Counter[int] = Counter()

    def look() -> bool:
        seen[len(bus.plans)] += 1
        return seen[len(bus.plans)] > 100

    return look


def followed(plan: RolloutPlan, **how: Any) -> RolloutReport:
    fields: dict[str, Any] = {"rollout": plan.rollout, "epoch": plan.epoch, "stage": plan.stage}
    return report(model="m", **fields | how)


async def test_of_two_that_begin_in_one_moment_one_goes_on() -> None:
    bus = Exchange()
    tasks = await two_begun(bus)
    done, going = await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [Ending.TAKEN_OVER]
    seen = len(bus.plans)
    await until(lambda: len(bus.plans) > seen + 5)
    assert len({plan.rollout for plan in bus.plans[seen + 1 :]}) == 1
    for task in going:
        task.cancel()


async def test_with_one_epoch_the_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copydesk.cli.rollout.controller.time.time_ns", lambda: 10**18)
    monkeypatch.setattr("copydesk.cli.rollout.controller.JITTER", 1)
    bus = Exchange()
    one, two = await two_begun(bus)
    assert await asyncio.wait_for(one, 30) is Ending.TAKEN_OVER
    assert not two.done()
    two.cancel()


async def away_too_long(bus: Exchange) -> asyncio.Task[Ending]:
    """Return a controller that hears nothing, and says nothing any more."""
    wanted = replace(WANTED, terms=replace(TERMS, expires_after_s=0.2))
    (task,) = await begun(bus, bus.controller(wanted))
    bus.cut = True
    await until(quiet(bus))
    return task


async def test_one_that_was_away_too_long_listens_and_gives_way_to_what_came_meanwhile() -> None:
    bus = Exchange()
    task = await away_too_long(bus)
    before = len(bus.plans)
    bus.pods()
    bus.say(
        followed(bus.plans[-1], rollout="later", epoch=bus.plans[-1].epoch + 5_000, stage=RolloutStage.FINISHED)
    )
    assert await asyncio.wait_for(task, 30) is Ending.TAKEN_OVER
    assert len(bus.plans) == before


async def test_one_that_was_away_too_long_goes_on_once_it_has_listened() -> None:
    bus = Exchange()
    task = await away_too_long(bus)
    before = len(bus.plans)
    bus.cut = False
    bus.pods()
    await until(lambda: len(bus.plans) > before + 3)
    task.cancel()


async def test_a_rollout_is_taken_over_for_its_own_versions_only() -> None:
    bus = Exchange()
    (task,) = await begun(bus, bus.controller())
    other = bus.controller(replace(WANTED, resume=True, candidate=OLD[:12], baseline=NEW), "r2")
    taking_over = asyncio.create_task(other.run())
    await asyncio.sleep(0)
    bus.pods()
    with pytest.raises(VersionError, match="r1 that is underway is from aaaaaaaaaaaa to bbbbbbbbbbbb"):
        await asyncio.wait_for(taking_over, 30)
    assert not task.done()
    task.cancel()


async def test_the_end_of_one_that_was_taken_over_meanwhile_is_not_told_as_its_own() -> None:
    bus = Exchange()
    controller = bus.controller()
    (task,) = await begun(bus, controller)
    bus.say(followed(bus.plans[-1]))
    controller.stop("enough")
    await until(lambda: bus.plans[-1].stage is RolloutStage.ROLLED_BACK)
    bus.say(msgspec.structs.replace(bus.plans[-1], rollout="r2", epoch=bus.plans[-1].epoch + 5_000))
    assert await asyncio.wait_for(task, 30) is Ending.TAKEN_OVER


async def test_an_end_that_no_gateway_confirms_is_told_as_such() -> None:
    bus = Exchange()
    easy = Policy(sentences=1, agreement=0.0, shares=(1.0,), seconds=0.0, requests=1)
    (task,) = await begun(bus, bus.controller(replace(WANTED, terms=replace(TERMS, policy=easy))))
    first = bus.plans[-1]
    bus.say(followed(first, same=50))
    await until(lambda: bus.plans[-1].stage is RolloutStage.SHARE)
    bus.say(followed(first, sequence=2, same=50, candidate=totals(NEW, 50)))
    assert await asyncio.wait_for(task, 30) is Ending.UNHEARD
    assert bus.plans[-1].stage is RolloutStage.FINISHED


@pytest.mark.parametrize(
    "wrong",
    [
        b'"compared":{"compared":10,"same":-5}',
        b'"compared":{"compared":1e3}',
        b'"candidate":{"digest":"b","failures":-1}',
        b'"baseline":{"digest":"a","counts":[-1]}',
        b'"candidate":{"digest":"b","requests":9223372036854775808}',
        b'"epoch":' + b"9" * 300,
        b'"share":2',
    ],
)
def test_reports_that_cannot_be_are_not_read(wrong: bytes) -> None:
    sound = msgspec.json.encode(report())
    assert msgspec.json.decode(sound, type=RolloutReport) == report()
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(sound[:-1] + b"," + wrong + b"}", type=RolloutReport)


@pytest.mark.parametrize(
    "wrong",
    [
        b'"expires_after_s":1e9',
        b'"expires_after_s":-1',
        b'"share":-0.1',
        b'"epoch":-1',
        b'"rollout":"' + b"r" * 999,
    ],
)
def test_plans_that_cannot_be_are_not_followed(wrong: bytes) -> None:
    fields = b'{"model":"m","rollout":"r","epoch":1,"sequence":1,"sent_at":0,"stage":"share","baseline":"a"'
    sound = fields + b',"candidate":"b","share":0.5'
    assert msgspec.json.decode(sound + b"}", type=RolloutPlan).share == 0.5
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(sound + b"," + wrong + (b'"' if b"rollout" in wrong else b"") + b"}", type=RolloutPlan)
