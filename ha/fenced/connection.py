"""The master's view of one follower's connection: a state machine with no I/O in it.

                HELLO             ATTACH          join()           report
    WAIT_HELLO -------> WAIT_ATTACH -----> JOINING ------> TRANSFER <----------+
        |                   |                |              |   |  transfer()  |
        |         OBJECTION |    other bytes |              |   |  heartbeat() |
        |                   v                v              |   +--------------+
        +---------------> CLOSED <--------------------------+
          bad message      ^  |       bad report
          refused HELLO    +--+ bytes that were still on their way: ignored

A HELLO is taken when it comes from a member of the group that knows the secret and has promised
nothing to a newer master. It acknowledges nothing, and neither does ATTACH. A report acknowledges
what is below it: the follower has compared the two lists of epochs before it attached, and both
sides the bytes before the joint, so its log is a part of ours. No report may be above what was sent
on this connection, be below an earlier one, or belong to another epoch.

Every frame carries the epoch of its bytes, and is within one epoch and one file of the log.
"""

from __future__ import annotations

import enum

import msgspec

from ha.errors import (
    HandshakeError,
    LinkFault,
    LinkRefusedError,
    LocalHAError,
    RemoteHAError,
    ReportBeyondSentError,
    ReportError,
    SlaveAheadError,
    SlaveTooOldError,
)
from ha.fenced.epochs import BEFORE_ALL_EPOCHS, EpochEntries, EpochEntry, end_of_entry, entry_at
from ha.fenced.protocol import (
    EPOCHS_SENT_MAX,
    OTHER_SECRET,
    REPORT,
    SEALED_REPORT_BYTES,
    STRANGER_BYTES_MAX,
    Attach,
    Challenge,
    FrameHeader,
    Hello,
    Joined,
    Objection,
    Refused,
    Report,
    Welcome,
    decode_message,
    decode_report,
    encode_frame_header,
    encode_message,
    is_proven,
    proven,
)
from ha.fenced.seal import NO_DIGEST, Seal, body_digest, seals
from ha.link.limits import TRANSFER_BODY_BYTES_MAX
from tandem.wire.feature_level import LEVEL_MIN, feature_level, needed_for
from tandem.wire.store_layout import OFFSET_MAX


class FencedConnectionState(enum.Enum):
    """See the diagram in the module docstring."""

    WAIT_HELLO = enum.auto()
    WAIT_ATTACH = enum.auto()
    JOINING = enum.auto()
    TRANSFER = enum.auto()
    CLOSED = enum.auto()


class LinkMaster(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are on the links of one epoch. The same for all connections."""

    cluster: str
    group: str
    name: str
    incarnation: str
    members: frozenset[str]
    """Names of the nodes that may follow."""
    secret: str
    epoch: int
    entries: EpochEntries
    """Of the epoch file; the last one is that of `epoch`."""
    file_size_bytes: int
    digests_bodies: bool = True
    """Whether frames say the digest of their bodies."""
    level: int = LEVEL_MIN
    """The feature level of the group: it says which version of the link is spoken."""

    @property
    def version(self) -> int:
        """Of the link."""
        return feature_level(self.level).link


class LogBounds(msgspec.Struct, frozen=True):
    """Our log as it is now, in bytes."""

    start: int
    end: int
    confirm: int


class Introduced(msgspec.Struct, frozen=True):
    """The follower is the node that it says it is; send `reply`."""

    name: str
    incarnation: str
    reply: bytes


class WantsJoin(msgspec.Struct, frozen=True):
    """Its log ends at `offset`, and is a part of ours by its epochs: `join` with our checksum."""

    offset: int
    check_from: int


class Objected(msgspec.Struct, frozen=True):
    """The two logs part at `parting`, and the follower has confirmed everything below `confirm`."""

    parting: int
    confirm: int


class Acked(msgspec.Struct, frozen=True):
    """The follower has written and flushed so much of our log, in bytes."""

    written: int
    flushed: int


class FencedConnection:
    """One connection of one follower. Owned by the task that serves it.

    Invariant in TRANSFER: `flushed` <= `written` <= `next_offset`, and every byte from where the
    follower attached to `next_offset` has been handed out for sending.
    """

    def __init__(self, master: LinkMaster, nonce: str) -> None:
        self._master = master
        self._nonce = nonce
        self._data = b""
        self._position = 0
        self._entry = EpochEntry(-1, 0)
        self._entry_end = 0
        self.state = FencedConnectionState.WAIT_HELLO
        self.name = ""
        """Of the follower; empty before its HELLO was taken."""
        self.incarnation = ""
        self.farewell = b""
        """What to send to a refused follower before the connection is closed."""
        self.written = self.flushed = 0
        """What the follower has reported."""
        self.next_offset = 0
        """Physical offset of the next byte to send; every byte below it was sent or not wanted."""
        self.sent_confirm = self.sent_flush_wanted = -1
        """What the last frame said; -1 before the first."""
        self._sent_epoch = -1
        self._their_nonce = ""
        self._frames_seal = self._reports_seal = Seal("", "")
        self._attach: Attach | None = None

    def challenge(self) -> bytes:
        """Return what to send first."""
        return encode_message(Challenge(version=self._master.version, nonce=self._nonce))

    def receive_data(self, data: bytes) -> None:
        """Keep bytes from the follower. Call `next_event` until it has no more."""
        if self.state is FencedConnectionState.CLOSED:
            return
        unread = self._data[self._position :]
        self._data = unread + data if unread else data
        self._position = 0

    def next_event(self, log: LogBounds) -> Introduced | WantsJoin | Objected | Acked | None:
        """Return what the follower said next, or None: more bytes are needed.

        Of reports that arrived together the last one counts, if none of them is wrong.

        Raises:
            RemoteHAError: no correct follower sends this. Nothing of it counts. Close the
                connection, after sending `farewell` if there is one.
        """
        try:
            match self.state:
                case FencedConnectionState.WAIT_HELLO:
                    return self._take_hello(log)
                case FencedConnectionState.WAIT_ATTACH:
                    return self._take_attach(log)
                case FencedConnectionState.TRANSFER:
                    return self._take_reports()
                case FencedConnectionState.JOINING | FencedConnectionState.CLOSED:
                    return None
        except RemoteHAError:
            self.state = FencedConnectionState.CLOSED
            raise

    def acknowledged(self) -> Acked | None:
        """Return what all reports together say that are here: `next_event` of TRANSFER, at once.

        Raises:
            RemoteHAError: see `next_event`.
        """
        if self.state is not FencedConnectionState.TRANSFER:
            return None
        try:
            return self._take_reports()
        except RemoteHAError:
            self.state = FencedConnectionState.CLOSED
            raise

    @property
    def their_checksum(self) -> str:
        """What the follower has said of the bytes before the joint; "" before that."""
        return self._attach.checksum if self._attach else ""

    def join(self, checksum: str) -> bytes:
        """Compare the bytes before the joint; return what to answer. From here on frames may go.

        Raises:
            LinkRefusedError: they differ. Send `farewell`, and close the connection.
        """
        attach = self._attach
        if self.state is not FencedConnectionState.JOINING or attach is None:
            raise LocalHAError(f"nothing is joined in state {self.state.name}")
        nonces = self._nonce, self._their_nonce
        said = encode_message(proven(Joined(checksum=checksum), self._master.secret, *nonces))
        if checksum != attach.checksum:
            self.state = FencedConnectionState.CLOSED
            self.farewell = said
            raise LinkRefusedError(
                f"has the same epochs, but other bytes between {attach.check_from} and"
                f" {attach.offset}: an epoch had two writers, or a disk has changed bytes"
            )
        self.next_offset = attach.offset
        self.state = FencedConnectionState.TRANSFER
        return said

    def frame_bytes_max(self) -> int:
        """Return how many bytes from `next_offset` on may go into one frame: to the epoch's end."""
        if not self._entry.start <= self.next_offset < self._entry_end:
            entries = self._master.entries
            self._entry = entry_at(entries, self.next_offset) or BEFORE_ALL_EPOCHS
            self._entry_end = end_of_entry(entries, self._entry.epoch, OFFSET_MAX)
        return min(self._entry_end - self.next_offset, TRANSFER_BODY_BYTES_MAX)

    @property
    def has_untold_epoch(self) -> bool:
        """True if no frame has said yet which epoch comes next."""
        if not self._entry.start <= self.next_offset < self._entry_end:
            self.frame_bytes_max()
        return self._sent_epoch != self._entry.epoch

    def transfer(self, body: bytes | memoryview, *, confirm: int, flush_wanted: int) -> bytes:
        """Return the header of a frame with `body`, the next bytes of the log; count it as sent."""
        self._expect_transfer()
        size = len(body)
        if not 0 < size <= self.frame_bytes_max():
            raise LocalHAError(f"a frame of {size} bytes at {self.next_offset} is not allowed")
        header = self._header(body, confirm, flush_wanted)
        self.next_offset += size
        return header

    def heartbeat(self, *, confirm: int, flush_wanted: int) -> bytes:
        """Return a frame without body."""
        self._expect_transfer()
        self.frame_bytes_max()
        return self._header(b"", confirm, flush_wanted)

    def close(self) -> None:
        """Stop counting what this connection says. Harmless when closed already."""
        self.state = FencedConnectionState.CLOSED

    def _header(self, body: bytes | memoryview, confirm: int, flush_wanted: int) -> bytes:
        self.sent_confirm = confirm
        self.sent_flush_wanted = flush_wanted
        self._sent_epoch = self._entry.epoch
        entry = self._entry
        header = FrameHeader(
            len(body), self.next_offset, entry.epoch, entry.start, confirm, flush_wanted
        )
        digest = body_digest(body) if self._master.digests_bodies and body else NO_DIGEST
        head = encode_frame_header(header, body) + digest
        return head + self._frames_seal.next(head)

    # What the follower says

    def _take_hello(self, log: LogBounds) -> Introduced | None:
        found = decode_message(self._data, STRANGER_BYTES_MAX)
        if found is None:
            return None
        hello, self._position = found
        if not isinstance(hello, Hello):
            raise HandshakeError(
                f"said {type(hello).__name__.upper()} where HELLO was expected",
                LinkFault.UNEXPECTED,
            )
        reason = self._objection(hello)
        if reason is not None:
            self.farewell = encode_message(Refused(reason=reason[:1000]))
            raise LinkRefusedError(f"calls itself {hello.node!r} and was refused: {reason}")
        self.name, self.incarnation = hello.node, hello.incarnation
        self._their_nonce = hello.nonce
        self._frames_seal, self._reports_seal = seals(self._master.secret, self._nonce, hello.nonce)
        self.state = FencedConnectionState.WAIT_ATTACH
        return Introduced(self.name, self.incarnation, self._welcome(hello.nonce, log))

    def _objection(self, hello: Hello) -> str | None:
        """Return why this follower is not served, in words for it; None if it is."""
        master = self._master
        for what, theirs, ours in (
            ("version of the link", hello.version, master.version),
            ("cluster", hello.cluster, master.cluster),
            ("group", hello.group, master.group),
        ):
            if theirs != ours:
                return f"{what} {theirs!r} is not that of {master.name}, {ours!r}"
        if not is_proven(hello, master.secret, self._nonce, hello.nonce):
            return f"the proof is wrong: {master.name} {OTHER_SECRET}"
        if hello.node not in master.members:
            return f"{hello.node!r} is not another node of group {master.group}: see cluster.yaml"
        return self._why_unfit(hello)

    def _why_unfit(self, hello: Hello) -> str | None:
        """Return why a member of the group is not served, in words for it; None if it is."""
        master = self._master
        if hello.level_max is not msgspec.UNSET and hello.level_max < master.level:
            return (
                f"it knows no feature level above {hello.level_max}, and the group is at"
                f" {master.level}: install {needed_for(master.level)}"
            )
        if hello.file_size_bytes != master.file_size_bytes:
            return (
                f"its log files have {hello.file_size_bytes} bytes, those of {master.name}"
                f" {master.file_size_bytes}: make them equal in cluster.yaml"
            )
        if hello.epoch > master.epoch:
            return (
                f"it has promised epoch {hello.epoch}, {master.name} is the master of epoch"
                f" {master.epoch} only"
            )
        return None

    def _welcome(self, their_nonce: str, log: LogBounds) -> bytes:
        master = self._master
        welcome = Welcome(
            epoch=master.epoch,
            node=master.name,
            incarnation=master.incarnation,
            epochs=master.entries[-EPOCHS_SENT_MAX:],
            log_start=log.start,
            log_end=log.end,
            confirm=log.confirm,
        )
        return encode_message(proven(welcome, master.secret, self._nonce, their_nonce))

    def _take_attach(self, log: LogBounds) -> WantsJoin | Objected | None:
        self._data, self._position = self._data[self._position :], 0
        found = decode_message(self._data, STRANGER_BYTES_MAX)
        if found is None:
            return None
        attach, self._position = found
        if isinstance(attach, Objection):
            if not is_proven(attach, self._master.secret, self._nonce, self._their_nonce):
                raise HandshakeError(
                    "objects without a proof that it knows the secret", LinkFault.PROOF
                )
            self.state = FencedConnectionState.CLOSED
            return Objected(attach.parting, attach.confirm)
        if not isinstance(attach, Attach):
            raise HandshakeError(
                f"said {type(attach).__name__.upper()} where ATTACH was expected",
                LinkFault.UNEXPECTED,
            )
        if not is_proven(attach, self._master.secret, self._nonce, self._their_nonce):
            raise HandshakeError(
                "attaches without a proof that it knows the secret", LinkFault.PROOF
            )
        if attach.offset > log.end:
            raise SlaveAheadError(slave_end=attach.offset, master_end=log.end)
        if attach.offset < log.start:
            raise SlaveTooOldError(reported_offset=attach.offset, master_min_offset=log.start)
        if not log.start <= attach.check_from <= attach.offset:
            raise HandshakeError(
                f"wants bytes from {attach.check_from} on compared; our log begins at {log.start}",
                LinkFault.PLACE,
            )
        self._attach = attach
        self.state = FencedConnectionState.JOINING
        return WantsJoin(attach.offset, attach.check_from)

    def _take_reports(self) -> Acked | None:
        position = self._position
        while len(self._data) - self._position >= SEALED_REPORT_BYTES:
            begin, end = self._position, self._position + REPORT.size
            report = decode_report(self._data, begin)
            self._position = begin + SEALED_REPORT_BYTES
            if not self._reports_seal.fits(self._data[begin:end], self._data[end : self._position]):
                raise ReportError(
                    "a report whose seal is wrong: somebody changes packets", LinkFault.SEAL
                )
            self._acknowledge(report)
        return Acked(self.written, self.flushed) if self._position > position else None

    def _acknowledge(self, report: Report) -> None:
        if report.epoch != self._master.epoch:
            raise ReportError(
                f"reported for epoch {report.epoch} where {self._master.epoch} is served",
                LinkFault.EPOCH,
            )
        if report.written > self.next_offset:
            raise ReportBeyondSentError(
                reported_offset=report.written, sent_offset=self.next_offset
            )
        if report.written < self.written or report.flushed < self.flushed:
            raise ReportError(
                f"reported {report.written} written and {report.flushed} flushed after"
                f" {self.written} and {self.flushed}",
                LinkFault.VALUES,
            )
        self.written, self.flushed = report.written, report.flushed

    def _expect_transfer(self) -> None:
        if self.state is not FencedConnectionState.TRANSFER:
            raise LocalHAError(f"nothing may be sent in state {self.state.name}")
