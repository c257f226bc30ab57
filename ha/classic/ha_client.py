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
the *start of its last record* and receives those bytes again. Until all of them have been
compared (VERIFY), nothing is appended and nothing more is reported. The reported start is never 0,
which a RocketMQ master would take for "begin at your last file": if the last record is the first of
the log, its first byte is left out of the comparison.

A shadow (`acknowledges=False`) copies a log, and no master counts it as a slave. Its first report
says where to begin, as every slave's does; from the first frame on it reports
`NOTHING_ACKNOWLEDGED`, which lowers what the master believes it to have. Until then it repeats the
first one: a master takes only the last of several reports that it reads at once.

In TRANSFER only whole, checked records leave (see `ha.link.whole_records`). What one read brings is
checked and handed out in one go, however many frames it holds.

Source: RocketMQ 5.3.3, store/ha/DefaultHAClient.dispatchReadRequest, which appends unchecked.
"""

from __future__ import annotations

import enum
from typing import Final

from ha.classic.protocol import REPORT, TRANSFER_HEADER
from ha.errors import (
    LocalHAError,
    LogDivergedError,
    MalformedTransferError,
    MasterBehindError,
    OffsetMismatchError,
    RemoteHAError,
)
from ha.link.limits import PLAIN_FRAME_BYTES_MAX, TRANSFER_BODY_BYTES_MAX
from ha.link.whole_records import AppendBody, WholeRecords
from tandem.wire.store_layout import OFFSET_MAX

NOTHING_ACKNOWLEDGED: Final = -(1 << 40)
"""What a shadow reports. It keeps the connection alive, wakes no put, and is further behind than
any haMaxGapNotInSync: so it is not counted among the replicas in sync either.

Source: DefaultHAConnection.ReadSocketService, DefaultHAService.inSyncReplicasNums and
notifyTransferSome, which only ever raises push2SlaveMaxOffset.
"""


class HAClientState(enum.Enum):
    """See the diagram in the module docstring."""

    READY = enum.auto()
    VERIFY = enum.auto()
    TRANSFER = enum.auto()
    BROKEN = enum.auto()


class HAClient:
    """Follows one master, connection after connection.

    Invariants: in VERIFY nothing has been handed out. In TRANSFER everything below what `_records`
    holds has been handed out, or was in the log when the connection began.
    Memory: what was last received, plus at most one record.
    """

    _data: bytes
    _position: int
    _is_used_up: bool  # by one frame of whole records: there is no other event
    _frame_left: int
    _overlap: bytes
    _log_end: int
    _reported: int
    _accepts_any_offset: bool
    _has_heard: bool

    def __init__(
        self,
        *,
        file_size_bytes: int,
        record_bytes_max: int,
        check_crc: bool,
        acknowledges: bool = True,
    ) -> None:
        self._acknowledges = acknowledges
        self._records = WholeRecords(
            file_size_bytes=file_size_bytes,
            record_bytes_max=record_bytes_max,
            check_crc=check_crc,
        )
        self.state = HAClientState.READY
        self._forget()

    def connected(self, log_end: int, last_record: bytes) -> bytes:
        """A connection has begun; return the first report to send.

        Args:
            log_end: the end of our log, exclusive; a record ends there.
            last_record: our last record, end-of-file records included; empty if there is none.
        """
        self._expect_state(HAClientState.READY)
        self._forget()
        self._overlap = last_record[1:] if len(last_record) == log_end else last_record
        self._log_end = log_end
        self._records.begin(log_end - len(self._overlap))
        self._accepts_any_offset = log_end == 0
        self.state = HAClientState.VERIFY if self._overlap else HAClientState.TRANSFER
        self._reported = self._records.end
        return REPORT.pack(self._reported)

    def receive_data(self, data: bytes) -> None:
        """Keep bytes from the master. Call `next_event` until it has no more."""
        if self.state is not HAClientState.TRANSFER:
            self._expect_state(HAClientState.VERIFY)
        if self._position < len(self._data):
            data = self._data[self._position :] + data
        self._data = data
        self._position = 0
        self._is_used_up = False

    def next_event(self) -> AppendBody | None:
        """Return the next write to carry out, or None: more bytes are needed.

        One at a time, so that a bad frame does not take the good ones that came before it down
        with it.

        Raises:
            RemoteHAError: no correct master sends this, or its log is not ours. Nothing of what
                is wrong has been handed out. Drop the connection.
        """
        if self.state is not HAClientState.TRANSFER:
            self._expect_state(HAClientState.VERIFY)
        if self._is_used_up:
            return None
        if not self._position and (event := self._take_plain_frame()) is not None:
            return event
        try:
            while True:
                gathered = self._gather()
                event = self._records.take()
                if event is not None or not gathered:
                    return event
        except RemoteHAError:
            self.state = HAClientState.BROKEN
            raise

    def report(self, log_end: int) -> bytes | None:
        """Return the report that is due after all events of a read round, or None.

        Args:
            log_end: the end of our log by now. The log is the one that knows.
        """
        if not self._acknowledges:
            is_told = self._reported == NOTHING_ACKNOWLEDGED
            return None if is_told else self.heartbeat(log_end)
        return None if log_end == self._reported else self.heartbeat(log_end)

    def heartbeat(self, log_end: int) -> bytes | None:
        """Return a report even if nothing is new; None while the logs have not been compared."""
        if self.state is not HAClientState.TRANSFER:
            return None
        if self._acknowledges:
            self._reported = log_end
        elif self._has_heard:
            self._reported = NOTHING_ACKNOWLEDGED
        return REPORT.pack(self._reported)

    def connection_lost(self) -> None:
        """The connection has ended. The next one fetches an incomplete record again."""
        self._expect_state(HAClientState.VERIFY, HAClientState.TRANSFER, HAClientState.BROKEN)
        self._forget()
        self.state = HAClientState.READY

    def _forget(self) -> None:
        self._data = b""
        self._position = 0
        self._is_used_up = False
        self._frame_left = 0
        self._records.begin(0)
        self._overlap = b""
        self._log_end = 0
        self._reported = -1
        self._accepts_any_offset = False
        self._has_heard = False

    def _take_plain_frame(self) -> AppendBody | None:
        """Take what a read brings when few puts are in flight: one frame of whole sound records.

        None: it is something else, or wrong, and nothing was taken.
        """
        size = len(self._data) - TRANSFER_HEADER.size
        if not 0 < size <= PLAIN_FRAME_BYTES_MAX or self._accepts_any_offset or self._frame_left:
            return None
        if TRANSFER_HEADER.unpack_from(self._data) != (self._records.end, size):
            return None
        if self.state is not HAClientState.TRANSFER:
            return None
        event = self._records.take_at_once(memoryview(self._data)[TRANSFER_HEADER.size :])
        if event is not None:
            self._position = len(self._data)
            self._is_used_up = True
        return event

    def _gather(self) -> bool:
        """Take all frames that are here to pieces. Return False if there was nothing to take."""
        start = self._position
        while self._position < len(self._data):
            if self._frame_left:
                self._take_body()
                continue
            try:
                if not self._take_header():
                    break
            except RemoteHAError:
                # Good records first; this is met again when they have been handed out.
                if self._records.is_ready:
                    break
                raise
        return self._position > start

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
            self._records.begin(offset)
            self._accepts_any_offset = size == 0
        elif offset != self._records.end:
            raise OffsetMismatchError(offset=offset, expected=self._records.end)
        elif size == 0 and self.state is HAClientState.VERIFY:
            raise MasterBehindError(log_end=self._log_end, master_end=offset)
        self._has_heard = True
        self._position += TRANSFER_HEADER.size
        self._frame_left = size
        return True

    def _take_body(self) -> None:
        """Compare or hold what is here of the current frame's body."""
        size = min(self._frame_left, len(self._data) - self._position)
        if self.state is HAClientState.VERIFY:
            size = min(size, len(self._overlap))
            self._compare(self._data[self._position : self._position + size])
            self._records.begin(self._records.end + size)
        else:
            self._records.add(memoryview(self._data)[self._position : self._position + size])
        self._position += size
        self._frame_left -= size

    def _compare(self, theirs: bytes) -> None:
        """Compare the next bytes of the overlap with our own."""
        ours = self._overlap[: len(theirs)]
        if ours != theirs:
            same = next(i for i in range(len(ours)) if ours[i] != theirs[i])
            raise LogDivergedError(offset=self._records.end + same)
        self._overlap = self._overlap[len(theirs) :]
        if not self._overlap:
            self.state = HAClientState.TRANSFER

    def _expect_state(self, *states: HAClientState) -> None:
        if self.state not in states:
            names = " or ".join(state.name for state in states)
            raise LocalHAError(f"the connection is in state {self.state.name}, expected {names}")
