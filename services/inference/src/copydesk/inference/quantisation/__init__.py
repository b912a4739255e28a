"""Quantisation: checkpoints in 8 bits of the compressed-tensors kind, described, written and judged."""
