"""Endpoints straight from a source, as discovery itself would ask it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from copydesk.cli.discovery.origin import OnSnapshot, OriginError
from copydesk.common.bus import Bus
from copydesk.common.errors import CopydeskError
from copydesk.common.messages import Endpoint, EndpointsSnapshot

if TYPE_CHECKING:
    from copydesk.eds.source import Source

Listing = tuple[Endpoint, ...]

FILE_VARIABLE = "COPYDESK_EDS_STATIC_FILE"
_HINTS = {
    "static": f"give a good file by --file or {FILE_VARIABLE}",
    "kubernetes": "discovery's settings COPYDESK_EDS_KUBE_... say where Kubernetes is and what to look for",
}


class SourceOrigin:
    """Endpoints as a source of discovery states them, before anything is held back; `kind` is its name.

    It is set up by the same environment variables as discovery; `file` wins over that of the static source.
    """

    def __init__(self, kind: str, file: Path | None) -> None:
        from prometheus_client import CollectorRegistry

        from copydesk.common.settings import load_settings
        from copydesk.eds.settings import EdsSettings, SourceKind

        if kind == SourceKind.STATIC.value and file is None and not os.environ.get(FILE_VARIABLE):
            raise OriginError("the static source needs a file", _HINTS[kind])
        named = SourceKind(kind)
        self._settings = (
            load_settings(EdsSettings, source=named)
            if file is None
            else load_settings(EdsSettings, source=named, static_file=file)
        )
        self._kind = kind
        self._registry = CollectorRegistry()
        self._source: Source | None = None
        self._said: dict[str, EndpointsSnapshot] = {}
        self._stale = False

    @property
    def connected(self) -> bool:
        """Whether the source can be heard."""
        return not self._stale

    @property
    def trouble(self) -> str:
        """What could not be listed, and why; empty once anything was stated."""
        if self._said:
            return ""
        samples = (sample for family in self._registry.collect() for sample in family.samples)
        failures = (s.labels for s in samples if s.name == "copydesk_eds_source_failures_total" and s.value)
        return "; ".join(f"{labels['resource']}: {labels['reason']}" for labels in failures)

    async def start(self, on_snapshot: OnSnapshot) -> None:
        """Ask the source; raise `OriginError` if it cannot begin."""
        from copydesk.eds.metrics import Metrics
        from copydesk.eds.roster import Event, Listed
        from copydesk.eds.sources import make_source

        def on_event(event: Event) -> None:
            if isinstance(event, Listed):
                self._tell(event.endpoints, on_snapshot, stale=event.stale)

        # No source that states lists listens to the bus, so this one is never connected.
        bus = Bus([self._settings.nats_url], "inspect", None)
        try:
            self._source = make_source(self._settings, bus, Metrics(self._registry))
            await self._source.start(on_event)
        except CopydeskError as error:
            raise OriginError(str(error), _HINTS[self._kind]) from error

    async def close(self) -> None:
        """Let go of the source."""
        if self._source is not None:
            await self._source.close()

    def _tell(self, endpoints: Mapping[str, Listing], on_snapshot: OnSnapshot, *, stale: bool) -> None:
        self._stale = stale
        for model in endpoints.keys() | self._said.keys():
            before = self._said.get(model)
            listed = endpoints.get(model, ())
            if before is not None and (before.endpoints, before.stale) == (listed, stale):
                continue
            self._said[model] = EndpointsSnapshot(
                model=model,
                epoch=0,
                generation=1 if before is None else before.generation + 1,
                sent_at=time.time(),
                endpoints=listed,
                stale=stale,
            )
            on_snapshot(self._said[model])
