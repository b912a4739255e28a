"""Why a model profile is not used."""

from __future__ import annotations

from copydesk.common.errors import CopydeskError


class ProfileError(CopydeskError):
    """A profile that cannot be read, contradicts itself, or is not for what it is to be used for.

    `source` says which one (a path), `key` where in it ("engine.slots"; "" for the whole), `problem` what is wrong
    and what was expected. It is the user's input: commands exit with 2.
    """

    exit_code = 2

    def __init__(self, source: str, key: str, problem: str) -> None:
        self.source = source
        self.key = key
        self.problem = problem
        super().__init__(f"{source}: {key}: {problem}" if key else f"{source}: {problem}")
