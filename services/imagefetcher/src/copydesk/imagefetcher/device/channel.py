"""The descriptor of /dev/fuse: requests in, replies out."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Sequence

from copydesk.imagefetcher.device import wire

DEVICE = "/dev/fuse"


def open_device() -> int:
    """Return a new descriptor of /dev/fuse, to be mounted."""
    return os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)


class Channel:
    """A mounted descriptor, which several threads may use; it owns `descriptor`.

    Closing it does not end the mount while another process (the holder) has the descriptor too.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_blocking(descriptor, False)
        self._wake_read, self._wake_write = os.pipe()

    def receive(self) -> bytes | None:
        """Wait for a request; None once `wake` was called or the file system is unmounted."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            if any(descriptor == self._wake_read for descriptor, _ in poll.poll()):
                return None
            try:
                return os.read(self.descriptor, wire.BUFFER_BYTES)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return None
                # Another thread was sooner, or whoever asked has gone.
                if error.errno not in (errno.EAGAIN, errno.EINTR, errno.ENOENT):
                    raise

    def reply(self, unique: int, parts: Sequence[bytes] = (), error: int = 0) -> None:
        """Answer a request; that whoever asked has gone is no error."""
        head = wire.reply_head(unique, sum(map(len, parts)), error)
        try:
            os.writev(self.descriptor, [head, *parts])
        except OSError as failure:
            if failure.errno not in (errno.ENOENT, errno.ENODEV, errno.EINTR):
                raise

    def resend(self) -> bool:
        """Have the kernel repeat what was never answered; say whether it can."""
        try:
            os.write(self.descriptor, wire.resend())
        except OSError:
            return False
        return True

    def wake(self) -> None:
        """Have every `receive` return, now and later."""
        os.write(self._wake_write, b"x")

    def close(self) -> None:
        """Close the descriptors of this process."""
        for descriptor in (self.descriptor, self._wake_read, self._wake_write):
            os.close(descriptor)
