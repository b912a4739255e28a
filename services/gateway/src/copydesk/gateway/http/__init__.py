"""The HTTP face of the gateway: what turns requests into tasks, and results into responses."""
