"""Routing decisions: pure functions over data."""
