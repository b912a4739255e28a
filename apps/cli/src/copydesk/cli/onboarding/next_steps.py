"""What to do with a model that is taken, as commands that can be pasted."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NextSteps:
    """`program` is how the command is called here; `default` says that the model's files are the default model's.

    `copydesk up` runs the default model where nothing else is named: beside itself there is nothing to roll out.
    """

    program: str
    profile: str
    default: bool = False

    @property
    def run(self) -> str:
        """Run it here."""
        return f"{self.program} up --profile {shlex.quote(self.profile)}"

    @property
    def roll_out(self) -> tuple[str, str] | None:
        """Put it beside the model that serves, and roll it out; None where both would be the same."""
        if self.default:
            return None
        path = shlex.quote(self.profile)
        return f"{self.program} up --candidate {path}", f"{self.program} model rollout --candidate {path}"
