"""The copydesk command."""
