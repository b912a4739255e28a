"""What the name or address of a host tells of who can reach it."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Say whether `host` can be reached from this machine only; a name other than localhost counts as not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
