"""The REST front of the fleet."""
