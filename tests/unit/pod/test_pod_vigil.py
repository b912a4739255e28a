import asyncio
import itertools

import pytest

from copydesk.inference.pod.vigil import SilentError, Vigil

PATIENCE = 0.05
HOUR = 3600.0


def stalling_vigil() -> Vigil:
    """The vigil of a process to which an hour passes whenever it waits."""
    return Vigil(PATIENCE, clock=itertools.count(0.0, HOUR).__next__)


async def nothing() -> str:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("it never comes")


async def test_a_peer_that_says_nothing_is_given_up() -> None:
    vigil = Vigil(PATIENCE)
    with pytest.raises(SilentError) as error:
        await vigil.attend(nothing(), PATIENCE)
    assert error.value.seconds == PATIENCE
    assert vigil.silent > PATIENCE


async def test_an_answer_ends_the_silence() -> None:
    async def answer() -> str:
        return "here"

    vigil = Vigil(PATIENCE)
    await vigil.pause(0.001)
    assert vigil.silent > 0.0
    assert await vigil.attend(answer(), PATIENCE) == "here"
    assert vigil.silent == 0.0


async def test_a_failure_to_ask_leaves_the_silence_as_it_is() -> None:
    async def fail() -> str:
        raise ConnectionError

    vigil = Vigil(PATIENCE)
    await vigil.pause(0.001)
    silent = vigil.silent
    with pytest.raises(ConnectionError):
        await vigil.attend(fail(), PATIENCE)
    assert vigil.silent >= silent


async def test_what_passes_while_the_watcher_stands_still_is_no_silence() -> None:
    vigil = stalling_vigil()
    await vigil.pause(0.002)
    assert vigil.silent == pytest.approx(0.002)

    async def answer_late() -> str:
        await asyncio.sleep(PATIENCE / 4)
        return "here"

    assert await vigil.attend(answer_late(), PATIENCE) == "here"


async def test_even_a_watcher_that_stalls_all_the_time_gives_up_in_the_end() -> None:
    vigil = stalling_vigil()
    with pytest.raises(SilentError):
        await vigil.attend(nothing(), PATIENCE)
    assert PATIENCE < vigil.silent < 2 * PATIENCE


async def test_a_watcher_that_is_cancelled_cancels_what_it_waits_for() -> None:
    ended = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    watching = asyncio.create_task(Vigil(HOUR).attend(hang(), HOUR))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert ended.is_set()
