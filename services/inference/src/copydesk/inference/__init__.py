"""Inference pods: `python -m copydesk.inference` runs one.

This package's own imports stay light: only the engine process pays for torch.
"""
