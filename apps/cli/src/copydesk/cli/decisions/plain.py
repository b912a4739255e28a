"""Names and sentences of decisions, fit for a terminal: logs and messages may hold whatever somebody put there."""

from __future__ import annotations

import msgspec

from copydesk.autoscaler.log_entry import Entry

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def plain(entry: Entry) -> Entry:
    """Return a decision without characters that move a cursor, change colours or hide what is written."""
    return msgspec.structs.replace(
        entry,
        model=legible(entry.model),
        policy=legible(entry.policy),
        rule=legible(entry.rule),
        reason=legible(entry.reason),
        acted=legible(entry.acted),
        stuck=tuple(legible(pod) for pod in entry.stuck),
    )


def legible(text: str) -> str:
    """Return a text of which each character that is not printed is replaced by one that says so."""
    return text if text.isprintable() else "".join(one if one.isprintable() else REPLACEMENT for one in text)
