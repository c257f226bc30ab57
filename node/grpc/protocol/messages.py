"""The classes of the messages in messages.proto; messages.pyi says what they have.

They are made of the descriptor when this module is imported, in a pool of their own: generated code
goes with a few versions of `protobuf` only, and two descriptors of one name, ours and a client's,
cannot be in one pool.
"""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
)
from google.protobuf.internal import enum_type_wrapper

from node.grpc.protocol.descriptor import DESCRIPTOR_SET


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    for known in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(DESCRIPTOR_SET))
    found: dict[str, Any] = {}
    for file in files.file:
        described = pool.Add(file) or pool.FindFileByName(file.name)
        for name, message in described.message_types_by_name.items():
            found[name] = message_factory.GetMessageClass(message)
        for name, enum in described.enum_types_by_name.items():
            values = {value.name: value.number for value in enum.values}
            found[name] = enum_type_wrapper.EnumTypeWrapper(enum)
            found |= values
    return found


globals().update(_classes())
