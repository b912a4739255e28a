"""The 8-bit decoder for processors: weights and activations are integers, whose sums are exact.

So an answer is the same bit by bit whatever else the engine computes in the same step, and whether tokens were
drafted or not. It needs no torch.
"""
