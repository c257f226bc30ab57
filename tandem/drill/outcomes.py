"""What can become of a send and of a drill, in the words of ledger, audit, report and history."""

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

Verdict = Literal["PASSED", "FAILED", "INCONCLUSIVE", "INTERRUPTED", "NOT POSSIBLE"]
"""What a whole drill came to."""

PASSED: Final = "PASSED"
FAILED: Final = "FAILED"
INCONCLUSIVE: Final = "INCONCLUSIVE"
INTERRUPTED: Final = "INTERRUPTED"
IMPOSSIBLE: Final = "NOT POSSIBLE"

EXIT_HELD: Final = 0
EXIT_BROKEN: Final = 1
EXIT_NOT_RUN: Final = 2
"""The drill could not be held: there is no verdict and, most times, no report."""
EXIT_INCONCLUSIVE: Final = 3
EXIT_NOT_POSSIBLE: Final = 4
EXIT_DEFECT: Final = 5
"""The drill itself failed, by a mistake of ours: nothing is known about the cluster."""
EXIT_INTERRUPTED: Final = 130
"""As a shell reports a program that Ctrl-C ended: 128 + SIGINT."""

EXIT_STATUSES: Final[dict[Verdict, int]] = {
    "PASSED": EXIT_HELD,
    "FAILED": EXIT_BROKEN,
    "INCONCLUSIVE": EXIT_INCONCLUSIVE,
    "NOT POSSIBLE": EXIT_NOT_POSSIBLE,
    "INTERRUPTED": EXIT_INTERRUPTED,
}
"""Each verdict has a status of its own."""
