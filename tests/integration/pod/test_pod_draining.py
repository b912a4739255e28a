import asyncio
import signal
from pathlib import Path

from copydesk.common.rpc import Channel, Response, RpcError, Status, TcpAddress
from copydesk.common.tasks import Outcome
from tests.integration.pod.running_pod import alive, answer, ask, fault, is_ready, pong_where, running_pod, until


async def accepted(channel: Channel, replies: list[Response], requests: int) -> None:
    """Wait until the pod holds that many requests, or has answered them."""
    await pong_where(channel, lambda pong: pong.load.running + pong.load.queued + len(replies) >= requests)


async def test_sigterm_in_mid_load_answers_all_that_was_accepted(talkative_model: Path, tmp_path: Path) -> None:
    with running_pod(talkative_model, tmp_path / "log", SLOTS=4, CONTEXT=1024, WORKERS=2) as pod:
        pod.wait_ready()
        channels = [await pod.channel() for _ in range(4)]
        for channel in channels:
            await pong_where(channel, is_ready)
        replies: list[Response] = []
        for number in range(24):
            channels[number % 4].send(ask(f"Request {number}."), deadline_ms=60_000, on_reply=replies.append)
        await accepted(channels[0], replies, 24)
        children = [pod.pid(child) for child in ("engine-0", "worker-0", "worker-1")]

        assert await asyncio.to_thread(pod.terminate) == 0

        await until("all answers", lambda: len(replies) == 24, timeout=10.0)
        assert {answer(response).outcome for response in replies} == {Outcome.TRUNCATED}
        assert all(channel.draining for channel in channels)
        assert not any(map(alive, children))
        assert pod.events("pod_state", state="draining")


async def test_a_draining_pod_refuses_what_is_new(talkative_model: Path, tmp_path: Path) -> None:
    with running_pod(talkative_model, tmp_path / "log", SLOTS=4, CONTEXT=1024) as pod:
        pod.wait_ready()
        channel = await pod.channel()
        await pong_where(channel, is_ready)
        replies: list[Response] = []
        for number in range(24):
            channel.send(ask(f"Request {number}."), deadline_ms=60_000, on_reply=replies.append)
        await accepted(channel, replies, 24)
        pod.process.send_signal(signal.SIGTERM)
        await until("a Drain frame", lambda: channel.draining)
        late = await channel.call(ask("Too late."), deadline_ms=5_000)
        assert fault(late) == (Status.UNAVAILABLE, "draining")
        assert await _refused(pod.port)
        assert await asyncio.to_thread(pod.process.wait, 60.0) == 0
        await until("all answers", lambda: len(replies) == 24, timeout=10.0)
        assert {response.status for response in replies} == {Status.OK}


async def test_what_outlasts_the_drain_is_answered_as_unavailable(endless_model: Path, tmp_path: Path) -> None:
    with running_pod(endless_model, tmp_path / "log", CONTEXT=100_000, DRAIN_TIMEOUT_MS=300) as pod:
        pod.wait_ready()
        channel = await pod.channel()
        await pong_where(channel, is_ready)
        replies: list[Response] = []
        channel.send(ask("Endless."), deadline_ms=120_000, on_reply=replies.append)
        await pong_where(channel, lambda pong: pong.load.running == 1)
        assert await asyncio.to_thread(pod.terminate) == 0
        await until("an answer", lambda: len(replies) == 1, timeout=10.0)
        assert replies[0].status is Status.UNAVAILABLE


async def test_a_pod_that_is_still_loading_ends_on_sigterm(silent_model: Path, tmp_path: Path) -> None:
    with running_pod(silent_model, tmp_path / "log") as pod:
        await until("an engine", lambda: bool(pod.events("child_started", child="engine-0")))
        engine = pod.pid("engine-0")
        assert await asyncio.to_thread(pod.terminate) == 0
        assert not alive(engine)


async def _refused(port: int) -> bool:
    """Say whether new connections end up nowhere, once the workers have stopped to listen."""
    for _ in range(200):
        try:
            channel = await Channel.open(TcpAddress("127.0.0.1", port), name="late", timeout=1.0)
        except RpcError:
            return True
        await channel.close()
        await asyncio.sleep(0.01)
    return False
