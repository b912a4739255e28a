"""What one replica of discovery holds back: asked of itself, over HTTP."""

from __future__ import annotations

import httpx
import msgspec

from copydesk.cli.discovery.origin import OriginError
from copydesk.cli.discovery.picture import HeldBack, HeldByModel

TIMEOUT_S = 2.0


async def held_back(url: str) -> HeldByModel:
    """Ask the replica at `url`; raise `OriginError` if it does not say."""
    from copydesk.eds.view import ReplicaView

    hint = "give http://host:port of a discovery that has COPYDESK_EDS_METRICS_PORT set"
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            answer = await client.get(f"{url.rstrip('/')}/endpoints")
            answer.raise_for_status()
        view = msgspec.json.decode(answer.content, type=ReplicaView)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OriginError(f"discovery at {url} does not answer: {error}", hint) from error
    except msgspec.DecodeError as error:
        raise OriginError(f"what answers at {url} is no discovery", hint) from error
    return {
        model.snapshot.model: {
            held.id: HeldBack(seconds=held.seconds, limit_seconds=held.limit_seconds) for held in model.held
        }
        for model in view.models
    }
