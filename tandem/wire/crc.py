"""The one checksum of the commit log: CRC-32 as RocketMQ stores it.

The polynomial is the zip one (CRC-32/ISO-HDLC), so zlib has it; `isal` computes the same value
four times faster at 1 KB and ten times faster on large buffers, and is used where it is installed
(docs/performance.md has the figures). RocketMQ clears the top bit so that the value is never
negative as a Java int.

Source: org.apache.rocketmq.common.UtilAll.crc32.
"""

from typing import Final

try:
    from isal.isal_zlib import crc32 as _crc32
except ImportError:  # no wheel for this platform: same value, slower
    from zlib import crc32 as _crc32

CRC_MASK: Final = 0x7FFFFFFF

raw_crc32 = _crc32
"""The full 32 bits, for loops that mask on their own."""


def crc32(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32 of `data` with the top bit cleared: 0 to 2**31 - 1. Empty data gives 0.

    Source: UtilAll.crc32.
    """
    return _crc32(data) & CRC_MASK
