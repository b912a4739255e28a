"""How much a request may ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request; the settings say why they are what they are."""

    body_bytes: int = 256 * 1024
    characters: int = 20_000
    texts: int = 256
    max_deadline_ms: int = 600_000
