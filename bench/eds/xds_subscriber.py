"""A proxy's ear: it subscribes to every cluster over aggregated xDS, decodes each answer and acknowledges it.

`python -m bench.eds.xds_subscriber PORT MODELS` writes a line once it has every cluster; given a line, it prints
how many answers it had, as JSON, and ends.
"""

from __future__ import annotations

import asyncio
import json
import sys

import grpc.aio

from copydesk.eds.xds.discovery_pb2 import ClusterLoadAssignment, DiscoveryRequest, DiscoveryResponse
from copydesk.eds.xds.types import AGGREGATED_SERVICE, ENDPOINTS


class Subscriber:
    """State of the world, all clusters named."""

    def __init__(self, channel: grpc.aio.Channel, models: int) -> None:
        self.answers = 0
        self.complete = asyncio.Event()
        self._names = [f"model-{number:02d}" for number in range(models)]
        self._known: dict[str, int] = {}
        self._call = channel.stream_stream(
            f"/{AGGREGATED_SERVICE}/StreamAggregatedResources",
            request_serializer=DiscoveryRequest.SerializeToString,
            response_deserializer=DiscoveryResponse.FromString,
        )()

    async def follow(self) -> None:
        """Ask, and acknowledge, for ever."""
        await self._ask(DiscoveryResponse())
        while isinstance(response := await self._call.read(), DiscoveryResponse):
            self.answers += 1
            for resource in response.resources:
                found = ClusterLoadAssignment.FromString(resource.value)
                self._known[found.cluster_name] = sum(len(part.lb_endpoints) for part in found.endpoints)
            if len(self._known) == len(self._names):
                self.complete.set()
            await self._ask(response)

    async def _ask(self, last: DiscoveryResponse) -> None:
        await self._call.write(
            DiscoveryRequest(
                type_url=ENDPOINTS,
                resource_names=self._names,
                version_info=last.version_info,
                response_nonce=last.nonce,
            )
        )

    def report(self) -> dict[str, int]:
        """What was heard."""
        return {"answers": self.answers, "endpoints": sum(self._known.values())}


async def main(port: int, models: int) -> None:
    """Follow until standard input ends."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.wait_for(channel.channel_ready(), 20)
        subscriber = Subscriber(channel, models)
        task = asyncio.create_task(subscriber.follow())
        await subscriber.complete.wait()
        print("complete", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        task.cancel()
        print(json.dumps(subscriber.report()), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
