"""What endpoint discovery costs, and how soon gateways know."""
