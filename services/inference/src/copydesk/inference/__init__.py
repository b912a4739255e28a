"""Inference pods: RPC workers and the native engine."""
