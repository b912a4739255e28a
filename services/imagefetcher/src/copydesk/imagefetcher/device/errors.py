"""What the kernel can refuse."""

from __future__ import annotations

import os

from copydesk.imagefetcher.errors import ImageError


class MountError(ImageError):
    """A mount or unmount that the kernel refuses: it carries what was tried, where, and the errno."""

    hint = "Mounting needs root (CAP_SYS_ADMIN), and a kernel with FUSE and EROFS."

    def __init__(self, action: str, target: str, code: int) -> None:
        self.action = action
        self.target = target
        self.code = code
        super().__init__(f"{action} {target}: {os.strerror(code)}")
