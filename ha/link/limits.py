"""Sizes that both kinds of replication link keep to, in bytes."""

from typing import Final

TRANSFER_BODY_BYTES_MAX: Final = 4 * 1024 * 1024 - 12
"""With the header of the classic wire, a bigger frame never fits the 4 MiB buffer of a RocketMQ
slave and hangs it. The fenced wire keeps to the same.

Source: DefaultHAClient.READ_MAX_BUFFER_SIZE.
"""

TRANSFER_BODY_BYTES_DEFAULT: Final = 256 * 1024
"""RocketMQ's haTransferBatchSize is 32 KiB; bigger frames cost fewer calls a byte."""

PLAIN_FRAME_BYTES_MAX: Final = 128 * 1024
"""Above it a frame is likely to be cut within a record, and looking at it twice would cost."""

RECEIVE_BYTES_MAX: Final = 1024 * 1024
"""Of the log, in one read. More does not make it faster."""

REPORT_BYTES_READ_MAX: Final = 64 * 1024
"""Of reports, in one read: some thousands of them."""
