"""A real pod under TLS: gateways with a certificate are served, nobody else, and renewed files count at once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from copydesk.common.rpc import Channel, RpcError, TcpAddress
from copydesk.common.tls import ClientTls, client_tls
from tests.fixtures.fleet_certificates import (
    POD_NAME,
    gateway_client,
    make_certificates,
    renew_certificates,
    stranger_files,
    variables,
)
from tests.integration.pod.running_pod import (
    RunningPod,
    answer,
    ask,
    eventually,
    is_ready,
    pong_where,
    running_pod,
)


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    return make_certificates(tmp_path / "fleet")


@pytest.fixture
def pod(silent_model: Path, tmp_path: Path, fleet: Path) -> Iterator[RunningPod]:
    token = tmp_path / "token"
    token.write_text("sesame\n")
    tls: dict[str, Any] = variables(fleet, "inference", "", "RPC")
    with running_pod(silent_model, tmp_path / "log", **tls, RPC_TOKEN_FILE=token) as pod:
        pod.wait_ready()
        yield pod


async def connect(pod: RunningPod, tls: ClientTls | None, token: str = "sesame") -> Channel:
    return await Channel.open(
        TcpAddress("127.0.0.1", pod.port),
        name="test",
        token=token,
        tls=tls.context() if tls else None,
        tls_name=tls.name if tls else "",
        timeout=20.0,
    )


async def serves(channel: Channel) -> None:
    await pong_where(channel, is_ready)
    assert answer(await channel.call(ask("It works."), deadline_ms=20_000)).text == "It works."


async def test_a_gateway_is_served_strangers_are_not_and_a_worker_that_comes_back_has_the_renewed_files(
    pod: RunningPod, fleet: Path, tmp_path: Path
) -> None:
    gateway = gateway_client(fleet)
    channel = await connect(pod, gateway)
    await serves(channel)
    other = make_certificates(tmp_path / "other")
    stranger = client_tls(stranger_files(fleet, other, "gateway"), POD_NAME)
    for tls, token in ((None, "sesame"), (stranger, "sesame"), (gateway, "poppy")):
        with pytest.raises(RpcError):
            await connect(pod, tls, token)

    renew_certificates(fleet)
    renewed = await connect(pod, gateway)
    await serves(channel)
    await serves(renewed)

    (tmp_path / "token").write_text("poppy")  # a rotation that the pod's other processes know nothing of
    os.kill(pod.pid("worker-0"), signal.SIGKILL)
    eventually("the worker back", lambda: len(pod.events("child_started", child="worker-0")) == 2)
    again = await connect(pod, gateway)
    await serves(again)
    for each in (channel, renewed, again):
        await each.close()
    assert pod.events("rpc_tls_refused")
