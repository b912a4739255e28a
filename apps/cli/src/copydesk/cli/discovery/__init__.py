"""What discovery says of the fleet, for people: heard over NATS, or straight from a source."""
