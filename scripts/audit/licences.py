"""Under which licences distributions are, in the identifiers of SPDX, and whether these are allowed.

What a distribution says of itself is read in the order of its reliability: `License-Expression` (PEP 639), then
the old field `License` where it names a licence that is known here, then classifiers. Whatever remains is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

_WORDS = re.compile(r"[()]|[^\s()]+")

ALIASES = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",  # which of them is not said; both are allowed alike
    "bsd 2-clause license": "BSD-2-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "the mit license (mit)": "MIT",
    "the unlicense (unlicense)": "Unlicense",
    "gpl-3.0": "GPL-3.0-only",
}
_KNOWN = frozenset({
    *ALIASES.values(), "0BSD", "BSL-1.0", "CC0-1.0", "CNRI-Python", "LGPL-2.1-only", "MIT-0", "MIT-CMU", "Zlib",
})  # fmt: skip
_NO_LICENCE = frozenset({"osi approved", "dfsg approved"})


class LicenceSyntaxError(ValueError):
    """An expression is none: `expression`, and why."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        super().__init__(f"{expression!r} is no licence expression: {reason}")


def declared(expression: str | None, field: str | None, classifiers: Iterable[str]) -> str | None:
    """Return what a distribution says of itself as one SPDX expression, or None if that names no known licence."""
    if expression:
        return expression
    if field and (named := _named(field)):
        return named
    of_classifiers = [text.split("::")[-1].strip() for text in classifiers if text.startswith("License")]
    names = [_named(text) for text in of_classifiers if text.lower() not in _NO_LICENCE]
    if not names or None in names:
        return None
    # Several are not said to be a choice: then all of them must be allowed.
    return " AND ".join(sorted({name for name in names if name}))


def _named(text: str) -> str | None:
    first = text.strip()
    if alias := ALIASES.get(first.lower()):
        return alias
    words = [word for word in _WORDS.findall(first) if word not in ("(", ")", "AND", "OR")]
    return first if words and all(word in _KNOWN for word in words) else None


def is_allowed(expression: str, allowed: Collection[str]) -> bool:
    """Whether an SPDX expression can be met by `allowed` alone: of OR one side is enough, of AND both are needed.

    Raises:
        LicenceSyntaxError: it is no expression.
    """
    reader = _Reader(expression, allowed)
    met = reader.either()
    reader.end()
    return met


class _Reader:
    """Reads an expression from left to right; AND binds tighter than OR, and WITH tighter than both."""

    def __init__(self, expression: str, allowed: Collection[str]) -> None:
        self._expression = expression
        self._words: list[str] = _WORDS.findall(expression)
        self._allowed = allowed

    def either(self) -> bool:
        met = self._both()
        while self._take("OR"):
            other = self._both()
            met = met or other
        return met

    def end(self) -> None:
        if self._words:
            raise LicenceSyntaxError(self._expression, f"{self._words[0]!r} is too much")

    def _both(self) -> bool:
        met = self._one()
        while self._take("AND"):
            other = self._one()
            met = met and other
        return met

    def _one(self) -> bool:
        if self._take("("):
            met = self.either()
            if not self._take(")"):
                raise LicenceSyntaxError(self._expression, "a bracket is not closed")
            return met
        name = self._name()
        if self._take("WITH"):
            name = f"{name} WITH {self._name()}"
        return name in self._allowed

    def _name(self) -> str:
        if not self._words or self._words[0] in ("AND", "OR", "WITH", "(", ")"):
            raise LicenceSyntaxError(self._expression, "a licence is missing")
        return self._words.pop(0)

    def _take(self, word: str) -> bool:
        if self._words[:1] != [word]:
            return False
        del self._words[0]
        return True
