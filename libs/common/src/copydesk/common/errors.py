"""The root of Copydesk's typed errors."""

from __future__ import annotations


class CopydeskError(Exception):
    """Anything that Copydesk itself raises; subclasses carry fields that say what and where."""
