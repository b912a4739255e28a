"""What a `WWW-Authenticate` header asks for (RFC 9110, section 11.6.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_MAX_BYTES = 8192
_PART = re.compile(r'[\s,]*([A-Za-z0-9!#$%&\'*+.^_`|~-]+)(?:(\s*=\s*)(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+)))?')


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to say who asks: `scheme` in lower case, with what it needs, names in lower case."""

    scheme: str
    parameters: dict[str, str] = field(default_factory=dict)


def parse_challenges(header: str) -> list[Challenge]:
    """The challenges in a header, as far as they can be read; of a very long one the beginning."""
    header = header[:_MAX_BYTES]
    found: list[Challenge] = []
    at = 0
    while match := _PART.match(header, at):
        at = match.end()
        name, equals, quoted, token = match.groups()
        if equals is None:
            found.append(Challenge(name.lower()))
        elif found:
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else token
            found[-1].parameters[name.lower()] = value
    return found
