"""What an answer is remembered by."""

from __future__ import annotations

import hashlib

DIGEST_BYTES = 24
"""Two texts that collide would get each other's corrections: making such a pair takes 2**96 tries."""


def cache_key(model_digest: str, payload: bytes) -> str:
    """Return the key of the answer that the weights `model_digest` give to a task.

    The task's whole encoding counts: the sentence, which has been normalised by cutting it out of its text, and
    whatever else it may ask for.
    """
    return hashlib.blake2b(b"%s\0%s" % (model_digest.encode(), payload), digest_size=DIGEST_BYTES).hexdigest()
