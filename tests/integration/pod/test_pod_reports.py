import asyncio
from pathlib import Path

from copydesk.common.bus import Bus
from copydesk.common.messages import EndpointState, LoadReport, load_subject
from tests.fixtures.nats import NatsServer
from tests.integration.pod.running_pod import RunningPod, answer, ask, is_ready, pong_where, running_pod, until

WARMING, READY, DRAINING = EndpointState.WARMING, EndpointState.READY, EndpointState.DRAINING


async def report_of(reports: list[LoadReport], state: EndpointState) -> LoadReport:
    """Wait for a report that says `state`."""
    await until(f"a report that says {state}", lambda: bool(reports) and reports[-1].state is state)
    return reports[-1]


async def correct_one(pod: RunningPod) -> str:
    channel = await pod.channel()
    await pong_where(channel, is_ready)
    text = answer(await channel.call(ask("It works."), deadline_ms=30_000)).text
    await channel.close()
    return text


async def test_a_pod_reports_its_state_and_load_from_the_first_moment_to_the_last(
    nats_server: NatsServer, silent_model: Path, tmp_path: Path
) -> None:
    bus = await Bus.connect(nats_server.url, name="test")
    reports: list[LoadReport] = []
    await bus.subscribe(load_subject("gec-en", "*"), LoadReport, reports.append)
    assert await bus.wait_connected(10.0)
    with running_pod(silent_model, tmp_path / "log", NATS_URL=nats_server.url, ZONE="a") as pod:
        warming = await report_of(reports, WARMING)
        assert (warming.pod, warming.zone) == ("pod-under-test", "a")
        assert (warming.host, warming.port) == ("127.0.0.1", pod.port)
        ready = await report_of(reports, READY)
        assert (ready.capacity, ready.running, ready.queued) == (8, 0, 0)
        assert ready.digest == pod.events("engine_ready")[-1]["digest"]
        pod.process.terminate()
        await report_of(reports, DRAINING)
        assert await asyncio.to_thread(pod.process.wait, 60.0) == 0
    states = [report.state for report in reports]
    assert states == sorted(states, key=[WARMING, READY, DRAINING].index)
    sequences = [report.sequence for report in reports]
    assert sequences == sorted(set(sequences))
    assert len({report.started_at for report in reports}) == 1
    await bus.close()


async def test_a_pod_serves_without_nats_and_reports_once_it_is_back(
    nats_server: NatsServer, silent_model: Path, tmp_path: Path
) -> None:
    nats_server.stop()
    with running_pod(silent_model, tmp_path / "log", NATS_URL=nats_server.url) as pod:
        pod.wait_ready()
        assert await correct_one(pod) == "It works."
        nats_server.start()
        bus = await Bus.connect(nats_server.url, name="test")
        reports: list[LoadReport] = []
        await bus.subscribe(load_subject("gec-en", "pod-under-test"), LoadReport, reports.append)
        await report_of(reports, READY)
        nats_server.stop()
        assert await correct_one(pod) == "It works."
        assert pod.terminate() == 0
        await bus.close()
