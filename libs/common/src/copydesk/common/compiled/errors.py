"""Why there is no compiled library."""

from __future__ import annotations

from copydesk.common.errors import CopydeskError


class CompiledLibraryError(CopydeskError):
    """The C++ sources cannot be built or loaded here; `advice` says what to do about it."""

    def __init__(self, reason: str, advice: str) -> None:
        self.reason = reason
        self.advice = advice
        super().__init__(f"the compiled library is not to be had: {reason}; {advice}")
