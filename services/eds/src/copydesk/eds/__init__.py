"""Endpoint discovery: sources say who is there, one snapshot per model is published.

Read it from the inside out: `silence`, `roster`, `guard` and `schedule` decide and are pure; `discovery` puts
them together; `heartbeat`, `static`, `probe` and `service` touch the world.
"""
