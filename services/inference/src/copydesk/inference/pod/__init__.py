"""The pod: one supervisor, one or more engine processes and N RPC workers, and what they say to one another.

The supervisor and the workers import no torch, so that a pod holds the weights, and the memory of the library
that runs them, once.
"""
