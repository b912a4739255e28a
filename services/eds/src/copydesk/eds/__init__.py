"""Endpoint discovery: who is in the fleet."""
