"""What every Copydesk service shares: settings, messages, bus, RPC and telemetry."""
