"""An engine in one of its settings, and which of them a command line asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from copydesk.common.errors import CopydeskError

OURS = "copydesk"
VLLM = "vllm"


class UnknownEngineError(CopydeskError):
    """No engine or setting has that name; `known` lists those that exist."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"no engine is called {name!r}; expected some of: {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Setting:
    """`engine` computing in `arithmetic`; `drafting` names how it guesses tokens ahead, empty: not at all.

    `options` are further details of this setting as the engine itself names them, for the record.
    """

    engine: str
    arithmetic: str
    drafting: str = ""
    options: str = ""

    @property
    def name(self) -> str:
        """How tables and JSON call it."""
        return " ".join(part for part in (self.engine, self.arithmetic, self.drafting) if part)

    @property
    def plain_name(self) -> str:
        """The same engine and arithmetic token by token, whose answers one at a time are the reference."""
        return f"{self.engine} {self.arithmetic}"

    @property
    def is_plain(self) -> bool:
        """Whether it decodes token by token."""
        return not self.drafting


def select(settings: Sequence[Setting], wanted: Sequence[str]) -> list[Setting]:
    """Return the settings of the engines, or with the names, in `wanted`; all of them if nothing is.

    Raises:
        UnknownEngineError: A name fits none.
    """
    for name in wanted:
        if not any(name in (setting.engine, setting.name) for setting in settings):
            known = dict.fromkeys([setting.engine for setting in settings] + [s.name for s in settings])
            raise UnknownEngineError(name, list(known))
    return [s for s in settings if not wanted or s.engine in wanted or s.name in wanted]
