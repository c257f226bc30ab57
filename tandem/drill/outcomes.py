"""What can become of a send, in the words of the ledger, the audit and the report."""

from typing import Final, Literal

SendMode = Literal["sync", "async"]
"""Whether the answer waits for other nodes (`sync`) or only for the master's log (`async`)."""

SEND_OK: Final = "SEND_OK"
FLUSH_DISK_TIMEOUT: Final = "FLUSH_DISK_TIMEOUT"
FLUSH_SLAVE_TIMEOUT: Final = "FLUSH_SLAVE_TIMEOUT"
SLAVE_NOT_AVAILABLE: Final = "SLAVE_NOT_AVAILABLE"
REJECTED: Final = "REJECTED"
NOT_SENT: Final = "NOT_SENT"
UNKNOWN: Final = "UNKNOWN"

STATUSES: Final = (
    SEND_OK,
    FLUSH_DISK_TIMEOUT,
    FLUSH_SLAVE_TIMEOUT,
    SLAVE_NOT_AVAILABLE,
    UNKNOWN,
    REJECTED,
    NOT_SENT,
)
"""Every outcome of a send, from best to worst for its producer."""
