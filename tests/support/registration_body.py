"""The body of REGISTER_BROKER as RocketMQ's RegisterBrokerBody compresses it."""

import struct
import zlib


def compressed_registration(
    topics: list[str],
    version: str = '{"counter":3,"stateVersion":1,"timestamp":5}',
    filter_servers: str = "[]",
    end: bytes = bytes(4),
) -> bytes:
    """Of texts `name read write perm SINGLE_TAG {attributes}`. `end`: no static topic."""
    blocks = b"".join(block(topic) for topic in topics)
    count = struct.pack(">i", len(topics))
    return zlib.compress(block(version) + count + blocks + block(filter_servers) + end)


def block(text: str) -> bytes:
    return struct.pack(">i", len(text.encode())) + text.encode()
