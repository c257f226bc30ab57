"""The master's view of one slave's connection: a state machine with no I/O in it.

                    first report                    report
    WAIT_REPORT ------------------> TRANSFER <---------------+
         |                             |  |   transfer()     |
         |                             |  |   heartbeat()    |
         |                             |  +------------------+
         |    bad report, refusal,     |
         +----------> CLOSED <---------+
                close()   ^ |
                          +-+ bytes that were still on their way: ignored

The first report is a request: it says where to begin, and acknowledges nothing. A slave of ours
has not compared its log with the master's yet at that moment, and a slave that differs must not
satisfy a put. Every later report acknowledges what is below it, and must not be above what was
sent on this connection.

Where we differ from RocketMQ on purpose:

- A report above the master's log end, or above what was sent, ends the connection. RocketMQ 5
  accepts it and counts it.
- An empty slave gets the whole log, not the last file, unless `sync_from_last_file`.
- The first report is not counted as an acknowledgement.

Source: RocketMQ 5.3.3, store/ha/DefaultHAConnection.ReadSocketService and WriteSocketService.
"""

from __future__ import annotations

import enum

from ha.classic.protocol import REPORT, TRANSFER_HEADER, refused_log_end
from ha.errors import (
    LocalHAError,
    NegativeReportError,
    RemoteHAError,
    ReportBeyondSentError,
    SlaveAheadError,
    SlaveRefusedError,
    SlaveTooOldError,
)
from ha.link.limits import TRANSFER_BODY_BYTES_MAX


class HAConnectionState(enum.Enum):
    """See the diagram in the module docstring."""

    WAIT_REPORT = enum.auto()
    TRANSFER = enum.auto()
    CLOSED = enum.auto()


class HAConnection:
    """One connection of one slave. Owned by the task that serves it.

    Invariant in TRANSFER: `slave_ack_offset` <= `next_offset`, and every byte from
    `slave_request_offset` to `next_offset` has been handed out for sending.
    """

    def __init__(self, *, file_size_bytes: int, sync_from_last_file: bool) -> None:
        assert file_size_bytes > 0
        self._file_size_bytes = file_size_bytes
        self._sync_from_last_file = sync_from_last_file
        self._partial = b""
        self.state = HAConnectionState.WAIT_REPORT
        self.slave_request_offset = -1
        """Offset of the first report in bytes; -1 before it."""
        self.slave_ack_offset = -1
        """The slave holds every byte below this, as compared or sent here; -1: nothing known."""
        self.next_offset = -1
        """Physical offset of the next byte to send; -1 before the first report."""

    def take_report(self, data: bytes) -> int | None:
        """Return the offset that a read acknowledges which is one report, as a rule.

        None: it is something else, and was not taken; see `receive_data`.
        """
        if (
            len(data) != REPORT.size
            or self._partial
            or self.state is not HAConnectionState.TRANSFER
        ):
            return None
        report: int = REPORT.unpack(data)[0]
        if not 0 <= report <= self.next_offset or report == self.slave_ack_offset:
            return None
        self.slave_ack_offset = report
        return report

    def receive_data(self, data: bytes, *, log_start: int, log_end: int) -> int | None:
        """Take bytes from the slave; return the offset that it has just acknowledged, or None.

        Of all complete reports only the last counts: each says more than those before it.

        Args:
            data: any piece of the stream; a report cut in two is put together again.
            log_start: the master's lowest physical offset.
            log_end: the master's log end, exclusive.

        Raises:
            RemoteHAError: no correct slave sends this. Close the connection.
        """
        if self.state is HAConnectionState.CLOSED:
            return None
        data = self._partial + data
        whole = len(data) - len(data) % REPORT.size
        self._partial = data[whole:]
        if not whole:
            return None
        (report,) = REPORT.unpack_from(data, whole - REPORT.size)
        try:
            if self.state is HAConnectionState.WAIT_REPORT:
                self._begin(report, log_start, log_end)
                return None
            return self._acknowledge(report, log_end)
        except RemoteHAError:
            self.state = HAConnectionState.CLOSED
            raise

    def transfer(self, body_bytes: int) -> bytes:
        """Return the header for the next `body_bytes` bytes of log and count them as sent."""
        self._expect_transfer()
        if not 0 < body_bytes <= TRANSFER_BODY_BYTES_MAX:
            raise LocalHAError(f"a frame of {body_bytes} bytes is not allowed")
        header = TRANSFER_HEADER.pack(self.next_offset, body_bytes)
        self.next_offset += body_bytes
        return header

    def heartbeat(self) -> bytes:
        """Return a frame without body. Only for when there is nothing to send.

        A slave of ours that compares its last bytes reads this as "the master has no more".
        """
        self._expect_transfer()
        return TRANSFER_HEADER.pack(self.next_offset, 0)

    def close(self) -> None:
        """Stop counting what this connection says. Harmless when closed already."""
        self.state = HAConnectionState.CLOSED

    def _begin(self, report: int, log_start: int, log_end: int) -> None:
        if report < 0:
            raise NegativeReportError(reported_offset=report)
        if report > log_end:
            raise SlaveAheadError(slave_end=report, master_end=log_end)
        if 0 < report < log_start:
            raise SlaveTooOldError(reported_offset=report, master_min_offset=log_start)
        self.slave_request_offset = report
        self.next_offset = (
            report if report > 0 else self._start_of_an_empty_slave(log_start, log_end)
        )
        self.state = HAConnectionState.TRANSFER

    def _start_of_an_empty_slave(self, log_start: int, log_end: int) -> int:
        if self._sync_from_last_file:
            return log_end - log_end % self._file_size_bytes
        return log_start

    def _acknowledge(self, report: int, log_end: int) -> int | None:
        if report > self.next_offset:
            raise ReportBeyondSentError(reported_offset=report, sent_offset=self.next_offset)
        if report < 0:
            slave_end = refused_log_end(report)
            if slave_end > log_end:
                raise SlaveAheadError(slave_end=slave_end, master_end=log_end)
            raise SlaveRefusedError(slave_end=slave_end)
        if report == self.slave_ack_offset:
            return None
        self.slave_ack_offset = report
        return report

    def _expect_transfer(self) -> None:
        if self.state is not HAConnectionState.TRANSFER:
            raise LocalHAError(f"nothing may be sent in state {self.state.name}")
