"""The order in which Java's HashMap hands out its entries, for property strings byte for byte.

No reader gives the order a meaning. But a record that a broker writes again (delayed, committed,
sent back) has its properties in this order in RocketMQ, and so it has here.

    bucket = (h ^ h >>> 16) & (capacity - 1)      h: Java's hash of the name
    buckets ascending; within a bucket in the order of insertion
    the capacity doubles whenever there are more entries than three quarters of it

Buckets of eight and more entries, which Java turns into trees, keep that order except for which
entry comes first; no real message has them.

Source: java.util.HashMap; RocketMQ 5.3.3, MessageDecoder.string2messageProperties (128).
"""

from collections.abc import Mapping
from typing import Final

from tandem.wire.message_properties import PARSED_MAP_CAPACITY, java_string_hash, join_properties

NEW_MAP_CAPACITY: Final = 16


def encode_in_java_order(
    properties: Mapping[str, str], capacity: int = PARSED_MAP_CAPACITY
) -> bytes:
    """Return the property string that RocketMQ writes for a map of these entries.

    They were read from a property string, so a value may hold 0x01.
    """
    while len(properties) * 4 > capacity * 3:
        capacity *= 2
    mask = capacity - 1
    names = sorted(properties, key=lambda name: _spread(name) & mask)
    return join_properties({name: properties[name] for name in names})


def _spread(name: str) -> int:
    value = java_string_hash(name) & 0xFFFFFFFF
    return value ^ value >> 16
