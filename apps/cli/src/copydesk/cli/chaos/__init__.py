"""`copydesk chaos`: where the faults strike, a fleet of its own or one that runs here."""
