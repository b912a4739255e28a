"""Schemathesis reads the OpenAPI page of a gateway and tries to catch it at answers that the page does not know.

The deadline is set for all requests: with one of its own choice, mostly of a millisecond, a 504 is the right
answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fixtures.nats import NatsServer
from tests.fixtures.text_pod import TextPod
from tests.integration.gateway.conftest import GatewayProcess, Site, eventually

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
)
EXAMPLES = 25
SEED = 20261130

pytestmark = pytest.mark.slow


@pytest.fixture
async def gateway(site: Site, nats_server: NatsServer) -> AsyncIterator[GatewayProcess]:
    pod = TextPod()
    await pod.start()
    (await site.discovery(nats_server)).announce(pod.endpoint())
    gateway = await site.gateway(nats_server.url)
    client = await site.client(gateway)

    async def ready() -> bool:
        return (await client.get("/readyz")).status_code == 200

    await eventually(ready)
    yield gateway
    await pod.stop()


async def test_no_request_gets_a_5xx_or_an_answer_that_is_not_documented(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    schemathesis = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("schemathesis"),
        "run",
        f"{gateway.url}/openapi.json",
        f"--checks={','.join(CHECKS)}",
        "--phases=examples,coverage,fuzzing",
        f"--max-examples={EXAMPLES}",
        f"--seed={SEED}",
        "--header=X-Request-Deadline-Ms: 60000",
        "--no-shrink",
        "--continue-on-failure",
        "--warnings=off",
        "--no-color",
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await schemathesis.communicate()
    report = output.decode()
    assert schemathesis.returncode == 0, report
    assert "Test cases:" in report
