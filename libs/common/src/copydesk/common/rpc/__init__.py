"""Copydesk's RPC: many requests in flight on one connection, for both hops from gateway to engine."""

from copydesk.common.rpc.address import Address, TcpAddress, UnixAddress
from copydesk.common.rpc.channel import Channel
from copydesk.common.rpc.errors import (
    FrameDecodeError,
    FrameError,
    FrameTooLargeError,
    RpcConnectError,
    RpcError,
    RpcHandshakeError,
    RpcListenError,
    RpcPingError,
    UnexpectedFrameError,
    WriteBufferFullError,
)
from copydesk.common.rpc.frames import PROTOCOL_VERSION, Fault, Hello, Load, Pong, Priority, Response, Status
from copydesk.common.rpc.inbound import InboundCall
from copydesk.common.rpc.server import Released, RpcServer

__all__ = [
    "PROTOCOL_VERSION",
    "Address",
    "Channel",
    "Fault",
    "FrameDecodeError",
    "FrameError",
    "FrameTooLargeError",
    "Hello",
    "InboundCall",
    "Load",
    "Pong",
    "Priority",
    "Released",
    "Response",
    "RpcConnectError",
    "RpcError",
    "RpcHandshakeError",
    "RpcListenError",
    "RpcPingError",
    "RpcServer",
    "Status",
    "TcpAddress",
    "UnexpectedFrameError",
    "UnixAddress",
    "WriteBufferFullError",
]
