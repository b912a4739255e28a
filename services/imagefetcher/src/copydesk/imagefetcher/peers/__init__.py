"""Nodes that give sectors to one another: who has what is said over NATS, sectors travel over HTTP."""
