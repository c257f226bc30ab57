"""The slave's half of replication: a state machine with no I/O in it.

               connected(), log empty
    READY ----------------------------> TRANSFER <---+
      |                                   ^  |  |    |  receive_data(), next_event()
      |  connected(), log not empty       |  |  +----+
      +-----------------> VERIFY ---------+  |
                            |  same bytes    |  bad frame, bad record
                            |                v
                            +-------------> BROKEN
                              bytes differ, heartbeat, bad frame

    connection_lost(): from VERIFY, TRANSFER and BROKEN back to READY

The classic wire says nothing about who sends or what the log held before, so a slave that merely
reported its end would glue a master's bytes to a log of another history. Ours therefore reports
the *start of its last record* and receives those bytes again. As long as they have not all been
compared (VERIFY), nothing is appended and nothing more is reported. The reported start is never 0,
which a RocketMQ master would take for "begin at your last file": if the last record is the first of
the log, its first byte is left out of the comparison.

In TRANSFER only whole records leave, each checked: known magic, lengths that add up, its own
physical offset, a body that its CRC fits, room left for the end-of-file record. So a slave's log
always ends where a record ends, whatever the cuts of the frames.

Bytes are looked at where they arrived. Copied are only records that two frames share.

Source: RocketMQ 5.3.3, store/ha/DefaultHAClient.dispatchReadRequest, which appends unchecked.
"""

from __future__ import annotations

import enum

import msgspec

from ha.errors import (
    CorruptTransferError,
    LocalHAError,
    LogDivergedError,
    MalformedTransferError,
    MasterBehindError,
    OffsetMismatchError,
    RemoteHAError,
)
from ha.protocol import REPORT, TRANSFER_BODY_BYTES_MAX, TRANSFER_HEADER
from tandem.wire.record_scan import BLANK_HEADER_BYTES, ScanStop, check_records

OFFSET_MAX = 2**63 - 1


class HAClientState(enum.Enum):
    """See the diagram in the module docstring."""

    READY = enum.auto()
    VERIFY = enum.auto()
    TRANSFER = enum.auto()
    BROKEN = enum.auto()


class AppendBody(msgspec.Struct, frozen=True):
    """Append `body`, one or more whole checked records, to our commit log at `offset`.

    All of `body` belongs into one file of the log. Its last record starts at `last_record_offset`.
    """

    offset: int
    body: bytes | memoryview
    last_record_offset: int


class HAClient:
    """Follows one master, session after session.

    Invariants: in VERIFY nothing has been handed out. In TRANSFER everything below
    `_received - len(_pending)` has been handed out, or was in the log when the session began.
    Memory: what was last received, plus at most one record.
    """

    _data: bytes
    _position: int
    _frame_left: int
    _pending: bytearray
    _needed: int
    _overlap: bytes
    _log_end: int
    _received: int
    _reported: int
    _accepts_any_offset: bool

    def __init__(self, *, file_size_bytes: int, record_bytes_max: int, check_crc: bool) -> None:
        assert file_size_bytes > BLANK_HEADER_BYTES
        self._file_size_bytes = file_size_bytes
        self._record_bytes_max = record_bytes_max
        self._check_crc = check_crc
        self.state = HAClientState.READY
        self._forget()

    def connected(self, log_end: int, last_record: bytes) -> bytes:
        """Start a session; return the first report to send.

        Args:
            log_end: the end of our log, exclusive; a record ends there.
            last_record: our last record, end-of-file records included; empty if there is none.
        """
        self._expect_state(HAClientState.READY)
        self._forget()
        self._overlap = last_record[1:] if len(last_record) == log_end else last_record
        self._log_end = log_end
        self._received = log_end - len(self._overlap)
        self._accepts_any_offset = log_end == 0
        self.state = HAClientState.VERIFY if self._overlap else HAClientState.TRANSFER
        self._reported = self._received
        return REPORT.pack(self._reported)

    def receive_data(self, data: bytes) -> None:
        """Keep bytes from the master. Call `next_event` until it has no more."""
        self._expect_state(HAClientState.VERIFY, HAClientState.TRANSFER)
        unread = self._data[self._position :]
        self._data = unread + data if unread else data
        self._position = 0

    def next_event(self) -> AppendBody | None:
        """Return the next write to carry out, or None: more bytes are needed.

        One at a time, so that a bad frame does not take the good ones that came before it down
        with it.

        Raises:
            RemoteHAError: no correct master sends this, or its log is not ours. Nothing of what
                is wrong has been handed out. Drop the connection.
        """
        self._expect_state(HAClientState.VERIFY, HAClientState.TRANSFER)
        try:
            while self._position < len(self._data):
                if not self._frame_left:
                    if not self._take_header():
                        return None
                elif self.state is HAClientState.VERIFY:
                    self._compare()
                elif (event := self._take_records()) is not None:
                    return event
        except RemoteHAError:
            self.state = HAClientState.BROKEN
            raise
        return None

    def report(self, log_end: int) -> bytes | None:
        """Return the report that is due after all events of a read round, or None.

        Args:
            log_end: the end of our log by now. The log is the one that knows.
        """
        return None if log_end == self._reported else self.heartbeat(log_end)

    def heartbeat(self, log_end: int) -> bytes | None:
        """Return a report even if nothing is new; None while the logs have not been compared."""
        if self.state is not HAClientState.TRANSFER:
            return None
        self._reported = log_end
        return REPORT.pack(log_end)

    def connection_lost(self) -> None:
        """End the session. An incomplete record is forgotten; the next session fetches it again."""
        self._expect_state(HAClientState.VERIFY, HAClientState.TRANSFER, HAClientState.BROKEN)
        self._forget()
        self.state = HAClientState.READY

    def _forget(self) -> None:
        self._data = b""
        self._position = 0
        self._frame_left = 0
        self._pending = bytearray()
        self._needed = 0
        self._overlap = b""
        self._log_end = 0
        self._received = 0
        self._reported = -1
        self._accepts_any_offset = False

    def _take_header(self) -> bool:
        """Read the next header. Return False if it is not all there."""
        if len(self._data) - self._position < TRANSFER_HEADER.size:
            return False
        offset, size = TRANSFER_HEADER.unpack_from(self._data, self._position)
        if not 0 <= size <= TRANSFER_BODY_BYTES_MAX or not 0 <= offset <= OFFSET_MAX - size:
            raise MalformedTransferError(
                offset=offset, size_bytes=size, size_bytes_max=TRANSFER_BODY_BYTES_MAX
            )
        if self._accepts_any_offset:
            # The master chooses where a new slave begins.
            self._received = offset
            self._accepts_any_offset = size == 0
        elif offset != self._received:
            raise OffsetMismatchError(offset=offset, expected=self._received)
        elif size == 0 and self.state is HAClientState.VERIFY:
            raise MasterBehindError(log_end=self._log_end, master_end=offset)
        self._position += TRANSFER_HEADER.size
        self._frame_left = size
        return True

    def _body_bytes_here(self) -> int:
        return min(self._frame_left, len(self._data) - self._position)

    def _consume(self, size: int) -> None:
        self._position += size
        self._frame_left -= size
        self._received += size

    def _compare(self) -> None:
        """Compare what is here of the overlap with our own bytes."""
        size = min(self._body_bytes_here(), len(self._overlap))
        ours = self._overlap[:size]
        theirs = self._data[self._position : self._position + size]
        if ours != theirs:
            same = next(i for i in range(size) if ours[i] != theirs[i])
            raise LogDivergedError(offset=self._received + same)
        self._overlap = self._overlap[size:]
        self._consume(size)
        if not self._overlap:
            self.state = HAClientState.TRANSFER

    def _take_records(self) -> AppendBody | None:
        """Take a run of whole records, or keep the beginning of one."""
        if self._pending:
            return self._complete_pending()
        offset = self._received
        start = self._position
        stop = start + min(self._body_bytes_here(), self._file_left(offset))
        last, whole_end, self._needed = self._find_whole(self._data, start, stop, offset)
        if whole_end > start:
            self._consume(whole_end - start)
            body = memoryview(self._data)[start:whole_end]
            return AppendBody(offset, body, offset + last - start)
        self._pending += self._data[start:stop]
        self._consume(stop - start)
        return None

    def _complete_pending(self) -> AppendBody | None:
        """Add to the record that an earlier frame began."""
        size = min(self._needed - len(self._pending), self._body_bytes_here())
        self._pending += self._data[self._position : self._position + size]
        self._consume(size)
        if len(self._pending) < self._needed:
            return None
        offset = self._received - len(self._pending)
        record = bytes(self._pending)
        _, whole_end, self._needed = self._find_whole(record, 0, len(record), offset)
        if not whole_end:
            return None
        self._pending.clear()
        return AppendBody(offset, record, offset)

    def _find_whole(
        self, buffer: bytes, start: int, stop: int, offset: int
    ) -> tuple[int, int, int]:
        """Find whole sound records in `buffer[start:stop]`, all of which lies in one file.

        Returns the positions where the last of them starts and ends; if that end is `start`,
        also how many bytes from `start` on it takes to know more.
        """
        if stop - start < BLANK_HEADER_BYTES:
            return start, start, self._fitting(BLANK_HEADER_BYTES, offset, spare=0)
        check = check_records(
            buffer,
            offset - start,
            start,
            stop,
            check_crc=self._check_crc,
            record_bytes_max=self._record_bytes_max,
        )
        if check.end > start:
            self._fitting(check.end - start, offset, spare=BLANK_HEADER_BYTES)
            return check.last_start, check.end, 0
        needed = check.needed_bytes
        if check.stop is ScanStop.TORN:
            return start, start, self._fitting(needed, offset, spare=BLANK_HEADER_BYTES)
        if check.stop is not ScanStop.BLANK:
            reason = check.reason or "zeros where a record should be"
            raise CorruptTransferError(offset=offset, reason=reason)
        if needed != self._file_left(offset):
            reason = f"end-of-file record of {needed} bytes does not end the file"
            raise CorruptTransferError(offset=offset, reason=reason)
        whole = stop - start >= needed
        return start, (start + needed if whole else start), needed

    def _fitting(self, size: int, offset: int, *, spare: int) -> int:
        """Return `size` if so many bytes from `offset` on leave `spare` bytes of the file."""
        left = self._file_left(offset) - spare
        if size > left:
            reason = f"{size} bytes of records where the file has room for {left}"
            raise CorruptTransferError(offset=offset, reason=reason)
        return size

    def _file_left(self, offset: int) -> int:
        return self._file_size_bytes - offset % self._file_size_bytes

    def _expect_state(self, *states: HAClientState) -> None:
        if self.state not in states:
            names = " or ".join(state.name for state in states)
            raise LocalHAError(f"the connection is in state {self.state.name}, expected {names}")
