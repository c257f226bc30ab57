"""What an audit asks of a ledger and the logs, and how its answer looks. Needs no Spark.

Matching: a record of the drill's topic belongs to a send if its KEYS are the send's id and its
BODYCRC is the CRC of what was sent. Only the master's log is matched; the others are compared with
it byte by byte. One row each in the table `audit`:

every send, exactly one of
    stored               answered SEND_OK, and in the log
    sync_lost            answered SEND_OK in sync mode, and not in the log: a broken promise
    async_lost           the same in async mode: allowed, and counted
    unknown_found        no clear answer (UNKNOWN, FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT,
                         SLAVE_NOT_AVAILABLE), and in the log
    unknown_missing      UNKNOWN, and not in the log
    stored_but_missing   one of the other three, which all say that the master has the message, and
                         it has not: a broken promise
    not_stored           REJECTED or NOT_SENT, and not in the log
    refused_but_stored   REJECTED or NOT_SENT, and in the log: its records are phantoms

every broken promise beyond those
    duplicated           a send that is in the log more often than it was sent; one row a send
    phantom              a record of the topic that belongs to no send, or to one that was refused
    misplaced            a send whose answer named a place where no copy of it is
    out_of_order         a record whose queue offset does not follow the one before it in its queue
                         (the first has 0), or whose sequence is not above the one before it of the
                         same producer and queue (of copies, the first counts)
    corrupt              a record, or a stretch of the log, that cannot be read as written
    slave_differs        a slave whose log does not have the master's bytes and end
    acknowledged_cut     fenced groups: a node cut off a message at a place that was acknowledged

allowed, and counted
    stored_again         a send that is in the log more than once, and was sent as often

A fenced group is judged up to `confirm`, the offset below which every node has the whole log;
past it a node may have what no producer has heard of. Two more rules differ there, because an
answer that is not SEND_OK promises nothing once another node is master: `stored_but_missing` counts
as `unknown_missing`, and only sync sends answered SEND_OK can be misplaced.

`tandem.spark.audit.job` and `tandem.drill.quick_audit` both answer by these rules.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

SEND_OK: Final = "SEND_OK"
UNKNOWN: Final = "UNKNOWN"
STORED_STATUSES: Final = ("FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE")
"""Not OK, but each of them says that the message is in the master's log."""
REFUSED_STATUSES: Final = ("REJECTED", "NOT_SENT")

STORED: Final = "stored"
SYNC_LOST: Final = "sync_lost"
ASYNC_LOST: Final = "async_lost"
UNKNOWN_FOUND: Final = "unknown_found"
UNKNOWN_MISSING: Final = "unknown_missing"
STORED_BUT_MISSING: Final = "stored_but_missing"
NOT_STORED: Final = "not_stored"
REFUSED_BUT_STORED: Final = "refused_but_stored"
DUPLICATED: Final = "duplicated"
PHANTOM: Final = "phantom"
MISPLACED: Final = "misplaced"
OUT_OF_ORDER: Final = "out_of_order"
CORRUPT: Final = "corrupt"
SLAVE_DIFFERS: Final = "slave_differs"
ACKNOWLEDGED_CUT: Final = "acknowledged_cut"
STORED_AGAIN: Final = "stored_again"

BROKEN_PROMISES: Final = (
    SYNC_LOST,
    STORED_BUT_MISSING,
    DUPLICATED,
    PHANTOM,
    MISPLACED,
    OUT_OF_ORDER,
    CORRUPT,
    ACKNOWLEDGED_CUT,
    SLAVE_DIFFERS,
)

TABLE_NAME: Final = "audit"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. None where it says nothing; places are those in the master's log."""

    finding: str
    node: str
    send_id: str | None = None
    scenario: str | None = None
    phase: str | None = None
    producer: str | None = None
    sequence: int | None = None
    mode: str | None = None
    status: str | None = None
    copies: int | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    detail: str | None = None


class AuditSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of an audit.

    `unknown_missing` includes `stored_but_missing`. `identical_by_slave` has every slave;
    `first_difference_by_slave` those that differ, with the physical offset of the first byte that
    is not the master's (or that only one of the two has). Of those, `shorter_slaves` have no other
    byte than the master, and lack its end. `records` are those of the topic in the master's log,
    `log_bytes` where that log ends.
    """

    sends: int
    records: int
    log_bytes: int
    sync_acknowledged: int
    sync_lost: int
    async_acknowledged: int
    async_lost: int
    unknown_found: int
    unknown_missing: int
    stored_but_missing: int
    duplicated: int
    phantom: int
    misplaced: int
    out_of_order: int
    corrupt: int
    identical_by_slave: dict[str, bool]
    first_difference_by_slave: dict[str, int]
    shorter_slaves: list[str] = []
    stored_again: int = 0
    acknowledged_cut: int = 0
    cut_records: int = 0
    """Messages of the topic in the tails that nodes of a fenced group have cut off."""

    @property
    def slaves_not_identical(self) -> int:
        """How many other nodes differ from the master."""
        return sum(not identical for identical in self.identical_by_slave.values())

    @property
    def byte_identical(self) -> bool:
        """Whether every other node has the master's log, byte for byte."""
        return not self.slaves_not_identical

    @property
    def promises_broken(self) -> int:
        """Everything that must be 0, together."""
        return (
            self.sync_lost
            + self.stored_but_missing
            + self.duplicated
            + self.phantom
            + self.misplaced
            + self.out_of_order
            + self.corrupt
            + self.acknowledged_cut
            + self.slaves_not_identical
        )


def summarise(
    counts: dict[str, int],
    acknowledged: dict[str, int],
    *,
    records: int,
    log_bytes: int,
    differences: dict[str, int | None],
    log_ends: Mapping[str, int],
    cut_records: int = 0,
) -> AuditSummary:
    """Put counts by finding, SEND_OK by mode and first differences by node into one record.

    `log_ends` are those of all nodes.
    """
    every_send = (
        STORED,
        SYNC_LOST,
        ASYNC_LOST,
        UNKNOWN_FOUND,
        UNKNOWN_MISSING,
        STORED_BUT_MISSING,
        NOT_STORED,
        REFUSED_BUT_STORED,
    )
    number = {name: counts.get(name, 0) for name in (*every_send, *BROKEN_PROMISES, STORED_AGAIN)}
    return AuditSummary(
        sends=sum(number[name] for name in every_send),
        records=records,
        log_bytes=log_bytes,
        sync_acknowledged=acknowledged.get("sync", 0),
        sync_lost=number[SYNC_LOST],
        async_acknowledged=acknowledged.get("async", 0),
        async_lost=number[ASYNC_LOST],
        unknown_found=number[UNKNOWN_FOUND],
        unknown_missing=number[UNKNOWN_MISSING] + number[STORED_BUT_MISSING],
        stored_but_missing=number[STORED_BUT_MISSING],
        duplicated=number[DUPLICATED],
        phantom=number[PHANTOM],
        misplaced=number[MISPLACED],
        out_of_order=number[OUT_OF_ORDER],
        corrupt=number[CORRUPT],
        identical_by_slave={slave: at is None for slave, at in differences.items()},
        first_difference_by_slave={
            slave: at for slave, at in differences.items() if at is not None
        },
        shorter_slaves=[
            slave for slave, at in differences.items() if at == log_ends[slave] < log_bytes
        ],
        stored_again=number[STORED_AGAIN],
        acknowledged_cut=number[ACKNOWLEDGED_CUT],
        cut_records=cut_records,
    )


def slave_findings(
    differences: Mapping[str, int | None], log_ends: Mapping[str, int], master: str
) -> list[Finding]:
    """Return a row for each node that differs, given every node's end of log."""
    return [
        Finding(
            finding=SLAVE_DIFFERS,
            node=node,
            physical_offset=at,
            detail=_difference_detail(at, log_ends[master], log_ends[node]),
        )
        for node, at in differences.items()
        if at is not None
    ]


def _difference_detail(at: int, master_end: int, slave_end: int) -> str:
    if at == min(master_end, slave_end):
        return f"the slave's log ends at {slave_end}, the master's at {master_end}"
    return f"first different byte at {at}; the logs end at {slave_end} and {master_end}"
