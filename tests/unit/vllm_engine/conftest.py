from collections.abc import AsyncIterator

import pytest_asyncio

from copydesk.inference.engine.vllm.engine import VllmEngine
from tests.unit.vllm_engine.fake_vllm import Client, FakeVllm


class Rig:
    """An engine of two slots, for which two more may wait, over a vLLM that a test plays."""

    def __init__(self) -> None:
        self.vllm = FakeVllm()
        self.engine = VllmEngine(self.vllm, context=32, slots=2, queue=2, drafts=True)
        self.client = Client(self.engine)


@pytest_asyncio.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    await rig.engine.open()
    yield rig
    rig.engine.close(1.0)
