"""What can go wrong on a connection, as types that carry what and where.

A single request never raises: it ends with a `Response` whose status and fault say why.
"""

from __future__ import annotations

from copydesk.common.errors import CopydeskError
from copydesk.common.rpc.address import Address


class RpcError(CopydeskError):
    """Anything that concerns an RPC connection as a whole."""


class _RpcAddressError(RpcError):
    what = "failed"

    def __init__(self, address: Address, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"{address}: {self.what}: {reason}")


class RpcListenError(_RpcAddressError):
    """A server could not start on its address."""

    what = "cannot listen"


class RpcConnectError(_RpcAddressError):
    """No connection: nobody listens there, the name does not resolve, TLS failed, or it took too long."""

    what = "cannot connect"


class RpcHandshakeError(_RpcAddressError):
    """Connected, but the other end did not greet as a Copydesk server of this version should."""

    what = "handshake failed"


class RpcPingError(_RpcAddressError):
    """A ping got no answer in time, or the connection was lost under it."""

    what = "ping failed"


class FrameError(RpcError):
    """Bytes that are no frame of this protocol: the connection they came from is closed."""


class FrameTooLargeError(FrameError):
    """A frame announces more bytes than the limit. Sizes in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"frame of {size} bytes exceeds the limit of {limit}")


class FrameDecodeError(FrameError):
    """A frame of permitted size whose content is not what the protocol knows."""

    def __init__(self, size: int, reason: str) -> None:
        self.size = size
        self.reason = reason
        super().__init__(f"frame of {size} bytes does not decode: {reason}")


class UnexpectedFrameError(FrameError):
    """A well-formed frame that this side must not receive at this point."""

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason
        super().__init__(f"unexpected {kind} frame: {reason}")


class WriteBufferFullError(RpcError):
    """The peer stopped reading, and more waits to be written than may be held for it. Sizes in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(f"peer does not read: {size} bytes wait to be written, limit {limit}")
