"""Zstandard frames from elsewhere, unpacked into no more memory than was agreed."""

from __future__ import annotations

import zstandard


def unpack_frame(packed: bytes | memoryview, most: int) -> bytes:
    """Return what a frame holds, at most `most` bytes; raises ZstdError for more, and for what is no frame.

    The library takes the length that a frame states for granted, whatever limit it is given: 8 KiB can make it
    allocate gigabytes. So that length is looked at first.
    """
    if zstandard.frame_content_size(packed) > most:
        raise zstandard.ZstdError(f"holds more than {most} bytes")
    return zstandard.ZstdDecompressor().decompress(packed, max_output_size=most)
