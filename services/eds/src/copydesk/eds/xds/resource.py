"""What is served, encoded once and shared by all streams that want it.

The encoding of a message is that of its fields, one behind the other (the protocol buffers' encoding guide), so a
response is a head of its own and the ready bytes of its resources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.any_pb2 import Any

from copydesk.eds.xds.discovery_pb2 import DeltaDiscoveryResponse, DiscoveryResponse
from copydesk.eds.xds.discovery_pb2 import Resource as NamedResource

# Both kinds of responses have their resources in the field of this number.
RESOURCES_FIELD = 2

VERSION_BYTES = 8


@dataclass(frozen=True, slots=True)
class Resource:
    """One version of a named thing; `whole` and `named` are its bytes in the two kinds of responses."""

    name: str
    version: str
    whole: bytes
    named: bytes


def make_resource(type_url: str, name: str, message: bytes) -> Resource:
    """Wrap the encoded `message`; its version is a digest of it, so that all replicas give it the same one."""
    version = digest(message)
    content = Any(type_url=type_url, value=message)
    named = NamedResource(version=version, resource=content, name=name)
    return Resource(
        name=name,
        version=version,
        whole=delimited(RESOURCES_FIELD, content.SerializeToString()),
        named=delimited(RESOURCES_FIELD, named.SerializeToString()),
    )


def whole_response(type_url: str, resources: Iterable[Resource], nonce: str) -> bytes:
    """Encode a `DiscoveryResponse`: state of the world, for the types of which it may be sent in parts."""
    parts = list(resources)
    head = DiscoveryResponse(version_info=_joint_version(parts), type_url=type_url, nonce=nonce)
    return b"".join([head.SerializeToString(), *(part.whole for part in parts)])


def delta_response(type_url: str, resources: Iterable[Resource], nonce: str) -> bytes:
    """Encode a `DeltaDiscoveryResponse`; nothing of ours is ever removed, a model without pods is an empty one."""
    parts = list(resources)
    head = DeltaDiscoveryResponse(system_version_info=_joint_version(parts), type_url=type_url, nonce=nonce)
    return b"".join([head.SerializeToString(), *(part.named for part in parts)])


def delimited(field: int, payload: bytes) -> bytes:
    """Encode `payload` as the field of that number, of a message, string or bytes."""
    return b"".join((_varint(field << 3 | 2), _varint(len(payload)), payload))


def digest(content: bytes) -> str:
    """Name `content` in 16 characters."""
    return hashlib.blake2b(content, digest_size=VERSION_BYTES).hexdigest()


def _joint_version(parts: list[Resource]) -> str:
    return parts[0].version if len(parts) == 1 else digest("".join(part.version for part in parts).encode())


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
