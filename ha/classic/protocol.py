"""The two messages of the classic HA wire, big-endian and signed.

Report, slave to master:

    offset  8 bytes  end of the slave's log: it holds every byte below this

The first report of a connection says where the master is to begin. Two readings of it are
ours, and legal on the classic wire:

- A slave with a log reports a little less than its end, receives those bytes again and compares
  them with its own before it appends anything (see `ha.classic.ha_client`).
- A negative report `-1 - end` says: "my log ends at `end` and I cannot follow yours; good-bye".
  To a RocketMQ master it is a report that acknowledges nothing.

Transfer, master to slave: a header and a body.

    offset  8 bytes  physical offset of the first body byte
    size    4 bytes  body length in bytes; 0 is a heartbeat, then offset is what comes next
    body    size bytes of commit log, verbatim, cut anywhere, never from two files

Source: RocketMQ 5.3.3, store/ha/DefaultHAConnection and DefaultHAClient.
"""

import struct

from ha.link.limits import TRANSFER_BODY_BYTES_MAX

REPORT = struct.Struct(">q")
TRANSFER_HEADER = struct.Struct(">qi")

assert REPORT.size == 8
assert TRANSFER_HEADER.size == 12
assert TRANSFER_BODY_BYTES_MAX + TRANSFER_HEADER.size == 4 * 1024 * 1024


def encode_refusal(log_end: int) -> bytes:
    """Return the farewell of a slave that cannot follow; `log_end` is the end of its log."""
    return REPORT.pack(-1 - log_end)


def refused_log_end(report: int) -> int:
    """Return the log end that a negative report carries."""
    return -1 - report
