"""`python -m copydesk.cli` is the copydesk command."""

from copydesk.cli.main import run

run()
