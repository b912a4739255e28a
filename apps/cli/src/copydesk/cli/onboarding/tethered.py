"""The copydesk command as a child that ends with its parent: `python -m copydesk.cli.onboarding.tethered ...`.

A fleet that outlived the measurement it was started for would be in the way of the next one.
"""

from __future__ import annotations

import os

from copydesk.common.process import die_with_parent

PARENT_VARIABLE = "COPYDESK_TETHERED_TO"


def main() -> None:
    """Tie this process to its parent, and be the command."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    die_with_parent(int(parent) if parent.isdecimal() else None)
    from copydesk.cli.main import run

    run()


if __name__ == "__main__":
    main()
