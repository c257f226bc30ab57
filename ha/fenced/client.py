"""The follower's half of the fenced link: a state machine with no I/O in it.

           connected()            CHALLENGE         attach()         JOINED
    READY -----------> CHALLENGED ---------> GREETED -------> JOINING ------> TRANSFER <--+
                           |                 |     |           |   |            |   |     |
                           |        WELCOME: |     v           |   |            |   +-----+
                           |   to be cut, or |   ENDED <-------+   |            |  next_event()
                           |     replaced, or      other bytes     |            |
                           |   it lacks what we confirmed          |            |
                           |                 |                     | bad        | bad frame
                           +----> BROKEN <---+------ message ------+------------+

    connection_lost(): from every state but READY back to READY

Before anything is taken, the two lists of epochs are compared, and then the last bytes before the
joint. Nothing is ever cut here, and a log that must be cut is not attached. A master that lacks
what was confirmed, and has confirmed nothing itself since the logs part, gets an objection: it is
the one that has to go.

In TRANSFER a frame counts once it is all there and fits its checksum; only whole, checked records
leave (see `ha.link.whole_records`). `BeginEpoch` leaves before the first byte of an epoch: the
entry must be on disk before it. The frames of one read are handed out in one go, however many
it holds, as far as they belong to one epoch. Good frames leave before a bad one is reported.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from ha.errors import (
    EpochConflictError,
    FrameError,
    HandshakeError,
    LinkFault,
    LinkRefusedError,
    LocalHAError,
    OffsetMismatchError,
    RemoteHAError,
)
from ha.fenced.epochs import (
    BEFORE_ALL_EPOCHS,
    EpochEntries,
    EpochEntry,
    consistent_point,
    entry_at,
)
from ha.fenced.joining import (
    AttachLog,
    Diverged,
    FollowerOutcome,
    OwnLog,
    join,
    lacking,
)
from ha.fenced.link_follower import LinkFollower, expect_master, hello
from ha.fenced.protocol import (
    HANDSHAKE_BYTES_MAX,
    HEAD_BYTES,
    MAGIC,
    OTHER_SECRET,
    Attach,
    Challenge,
    FrameHeader,
    HandshakeMessage,
    Joined,
    Objection,
    Refused,
    Report,
    Welcome,
    decode_frame_header,
    decode_message,
    encode_message,
    encode_report,
    is_proven,
    proven,
    why_no_version,
)
from ha.fenced.seal import DIGEST_BYTES, SEAL_BYTES, BodyDigest, Seal, seals
from ha.link.limits import PLAIN_FRAME_BYTES_MAX
from ha.link.whole_records import AppendBody, WholeRecords
from tandem.wire.crc import raw_crc32


class FencedClientState(enum.Enum):
    """See the diagram in the module docstring."""

    READY = enum.auto()
    CHALLENGED = enum.auto()
    GREETED = enum.auto()
    JOINING = enum.auto()
    TRANSFER = enum.auto()
    ENDED = enum.auto()
    BROKEN = enum.auto()


class SendHello(msgspec.Struct, frozen=True):
    """Send `data`."""

    data: bytes


class Attached(msgspec.Struct, frozen=True):
    """The two logs are joined: what comes now belongs after `offset`."""

    offset: int


class Object(msgspec.Struct, frozen=True):
    """Send `data`, and end the connection: the master lacks what was confirmed, and has to go."""

    data: bytes
    reason: str


class BeginEpoch(msgspec.Struct, frozen=True):
    """Write this entry durably before anything that is handed out from now on."""

    epoch: int
    start: int
    id: str = ""


Event: TypeAlias = (
    SendHello | AttachLog | Attached | Object | FollowerOutcome | BeginEpoch | AppendBody
)


class FencedClient:
    """Follows one master, connection after connection.

    Invariant in TRANSFER: everything below what `_records` holds has been handed out, or was in the
    log when the connection began; all of it is of `data_epoch` or older.
    Memory: what was last received, plus one frame and one record.
    """

    _data: bytes
    _position: int
    _own: OwnLog
    _nonce: str
    _nonces: tuple[str, str]
    _frame: FrameHeader | None
    _frame_left: int
    _frame_crc: int
    _frame_crc_expected: int
    _pieces: list[memoryview]
    _fault: RemoteHAError | None
    _entry: EpochEntry

    def __init__(self, follower: LinkFollower) -> None:
        self._follower = follower
        self._records = WholeRecords(
            file_size_bytes=follower.file_size_bytes,
            record_bytes_max=follower.record_bytes_max,
            check_crc=follower.check_crc,
        )
        self.state = FencedClientState.READY
        self._forget()

    @property
    def data_epoch(self) -> int:
        """Return the epoch of the bytes that are handed out."""
        return self._entry.epoch

    def connected(self, own: OwnLog, nonce: str) -> None:
        """A connection has begun. The master speaks first."""
        self._expect_state(FencedClientState.READY)
        self._forget()
        self._own = own
        self._nonce = nonce
        self.state = FencedClientState.CHALLENGED

    def receive_data(self, data: bytes) -> None:
        """Keep bytes from the master. Call `next_event` until it has no more."""
        if self.state is not FencedClientState.TRANSFER:
            self._expect_state(
                FencedClientState.CHALLENGED, FencedClientState.GREETED, FencedClientState.JOINING
            )
        if self._position < len(self._data):
            data = self._data[self._position :] + data
        self._data = data
        self._position = 0

    def next_event(self) -> Event | None:
        """Return what to do next, or None: more bytes are needed. One at a time.

        Raises:
            RemoteHAError: no correct master sends this, or it is not the one to follow. Nothing
                of what is wrong has been handed out. Drop the connection.
        """
        try:
            match self.state:
                case FencedClientState.TRANSFER:
                    return self._take_frames()
                case FencedClientState.CHALLENGED:
                    return self._take_challenge()
                case FencedClientState.GREETED:
                    return self._take_welcome()
                case FencedClientState.JOINING:
                    return self._take_joined()
                case FencedClientState.ENDED:
                    return None
                case _:
                    raise LocalHAError(f"no events in state {self.state.name}")
        except RemoteHAError:
            self.state = FencedClientState.BROKEN
            raise

    @property
    def compared(self) -> tuple[int, int]:
        """From where to where the bytes before the joint are compared on this connection."""
        return (self._joint.check_from, self._joint.offset) if self._joint else (0, 0)

    def report(self, written: int, flushed: int) -> bytes:
        """Return a report. The log is the one that knows both numbers."""
        self._expect_state(FencedClientState.JOINING, FencedClientState.TRANSFER)
        said = encode_report(Report(self._follower.epoch, written, flushed))
        return said + self._reports_seal.next(said)

    def connection_lost(self) -> None:
        """The connection has ended. The next one fetches again what is not whole."""
        if self.state is FencedClientState.READY:
            raise LocalHAError("there is no connection to end")
        self._forget()
        self.state = FencedClientState.READY

    def _forget(self) -> None:
        self._data = b""
        self._position = 0
        self._nonce = ""
        self._nonces = "", ""
        self._frame = None
        self._frame_left = 0
        self._frame_crc = self._frame_crc_expected = 0
        self._pieces = []
        self._digest = BodyDigest(is_wanted=self._follower.digests_bodies)
        self._frames_seal = self._reports_seal = Seal("", "")
        self._fault = None
        self._entry = BEFORE_ALL_EPOCHS
        self._theirs: EpochEntries = ()
        self._joint: AttachLog | None = None
        self._checksum = ""
        self.equal_below = 0
        self.master_end = 0
        """Where the master's log ended when it was dialled."""
        """Up to where our log and the master's are known to be equal, after the WELCOME."""
        self._records.begin(0)
        self.confirm = 0
        """Of the last whole frame, or of the WELCOME."""
        self.flush_wanted = 0
        """Of the last whole frame."""

    # Handshake

    def _take_message(self) -> HandshakeMessage | None:
        self._data, self._position = self._data[self._position :], 0
        found = decode_message(self._data, HANDSHAKE_BYTES_MAX)
        if found is None:
            return None
        message, self._position = found
        if isinstance(message, Refused):
            words = "".join(c if c.isprintable() else "?" for c in message.reason)
            raise LinkRefusedError(f"it refuses us: {words}")
        return message

    def _take_challenge(self) -> SendHello | None:
        challenge = self._take_message()
        if challenge is None:
            return None
        if not isinstance(challenge, Challenge) or challenge.magic != MAGIC:
            raise HandshakeError("there is no node of a fenced group", LinkFault.STRANGER)
        follower = self._follower
        why_not = why_no_version(challenge.version, follower.level_max)
        if why_not is not None:
            raise HandshakeError(why_not, LinkFault.VERSION)
        self._nonces = challenge.nonce, self._nonce
        self._frames_seal, self._reports_seal = seals(follower.secret, *self._nonces)
        self.state = FencedClientState.GREETED
        return SendHello(hello(follower, challenge.version, self._own.promised, self._nonces))

    def _take_welcome(self) -> AttachLog | Object | FollowerOutcome | None:
        welcome = self._take_message()
        if welcome is None:
            return None
        if not isinstance(welcome, Welcome):
            kind = type(welcome).__name__.upper()
            raise HandshakeError(f"it said {kind} instead of WELCOME", LinkFault.UNEXPECTED)
        expect_master(welcome, self._follower, self._own.promised, self._nonces)
        self._theirs = welcome.epochs
        self.master_end = welcome.log_end
        own = self._own
        try:
            cut = consistent_point(own.entries, own.end, welcome.epochs, welcome.log_end)
        except EpochConflictError as error:
            self.state = FencedClientState.ENDED
            return Diverged(reason=str(error))
        self.equal_below = cut or 0
        found = join(own, welcome, self._follower.file_size_bytes, cut)
        if isinstance(found, AttachLog):
            self._joint = found
            self.confirm = welcome.confirm
        else:
            self.state = FencedClientState.ENDED
        if isinstance(found, Objection):
            said = encode_message(proven(found, self._follower.secret, *self._nonces))
            return Object(said, lacking(own, welcome, self.equal_below))
        return found

    def attach(self, checksum: str) -> bytes:
        """Return what to send after an `AttachLog`: `checksum` is of our bytes that it names."""
        self._expect_state(FencedClientState.GREETED)
        joint = self._joint
        if joint is None:
            raise LocalHAError("there was no WELCOME to attach after")
        self._records.begin(joint.offset)
        self._entry = joint.entries[-1] if joint.entries else BEFORE_ALL_EPOCHS
        self._checksum = checksum
        self.state = FencedClientState.JOINING
        said = Attach(offset=joint.offset, check_from=joint.check_from, checksum=checksum)
        return encode_message(proven(said, self._follower.secret, *self._nonces))

    def _take_joined(self) -> Attached | Diverged | None:
        joined = self._take_message()
        if joined is None:
            return None
        joint = self._joint
        assert joint is not None, "this state begins with it"
        if not isinstance(joined, Joined):
            raise HandshakeError(
                f"it said {type(joined).__name__.upper()} instead of JOINED", LinkFault.UNEXPECTED
            )
        if not is_proven(joined, self._follower.secret, *self._nonces):
            raise HandshakeError(f"its proof is wrong: it {OTHER_SECRET}", LinkFault.PROOF)
        if joined.checksum != self._checksum:
            self.state = FencedClientState.ENDED
            self.equal_below = 0
            return Diverged(
                reason=f"our log and that of {self._follower.master} have the same epochs, but"
                f" other bytes between {joint.check_from} and {joint.offset}: an epoch had two"
                " writers (a coordinator that was set back?), or a disk has changed bytes"
            )
        self.state = FencedClientState.TRANSFER
        return Attached(joint.offset)

    # Frames

    def _take_frames(self) -> BeginEpoch | AppendBody | None:
        if not self._position and (event := self._take_plain_frame()) is not None:
            return event
        if self._position < len(self._data) or self._frame is not None:
            self._gather()
        event = self._records.take()
        if event is not None:
            return event
        if self._fault is not None:
            raise self._fault
        if self._frame is not None and self._frame.epoch > self._entry.epoch:
            return self._begin_epoch(self._frame)
        return None

    def _take_plain_frame(self) -> AppendBody | None:
        """Take what a read brings when few puts are in flight: one frame of whole sound records.

        None: it is something else, or not as far as was looked at; `_gather` goes on from there.

        Raises:
            RemoteHAError: the frame is wrong. Nothing came before it that is still to be taken.
        """
        size = len(self._data) - HEAD_BYTES
        is_under_way = self._frame is not None or self._records.held_bytes or self._fault
        if is_under_way or not 0 < size <= PLAIN_FRAME_BYTES_MAX:
            return None
        self._take_header()
        frame = self._frame
        if frame is None or frame.size != size or frame.epoch > self._entry.epoch:
            return None
        self._take_body()
        self._expect_undamaged(frame)
        event = self._records.take_at_once(self._pieces[0])
        if event is not None:
            self._pieces.clear()
        self._end_frame(frame)
        return event

    def _gather(self) -> None:
        """Take all frames to pieces that are here and of this epoch.

        What is wrong is kept for later: what came before it has to be handed out first.
        """
        try:
            while self._fault is None:
                if self._frame is None and not self._take_header():
                    return
                frame = self._frame
                assert frame is not None
                if frame.epoch > self._entry.epoch:
                    return
                if self._frame_left and not self._take_body():
                    return
                if not self._frame_left:
                    self._expect_undamaged(frame)
                    self._end_frame(frame)
        except RemoteHAError as error:
            self._fault = error

    def _take_header(self) -> bool:
        """Read the next header. Return False if it is not all there."""
        begin = self._position
        sealed, end = begin + HEAD_BYTES - SEAL_BYTES, begin + HEAD_BYTES
        if len(self._data) < end:
            return False
        frame, self._frame_crc, self._frame_crc_expected = decode_frame_header(self._data, begin)
        # Before anything is done for it: an epoch that begins is written down before the body.
        if not self._frames_seal.fits(self._data[begin:sealed], self._data[sealed:end]):
            raise FrameError(
                "a frame whose seal is wrong: somebody changes packets", LinkFault.SEAL
            )
        self._digest.expect(self._data[sealed - DIGEST_BYTES : sealed])
        expected = self._records.end
        if frame.offset != expected:
            raise OffsetMismatchError(offset=frame.offset, expected=expected)
        epoch, start = frame.epoch, frame.epoch_start
        if epoch == self._entry.epoch:
            good = start == self._entry.start
        else:
            good = self._entry.epoch < epoch <= self._follower.epoch and start == expected
        if not good:
            raise FrameError(
                f"a frame of epoch {epoch} from {start} on, at {expected} in epoch"
                f" {self._entry.epoch} from {self._entry.start} on",
                LinkFault.EPOCH,
            )
        self._position = end
        self._frame = frame
        self._frame_left = frame.size
        return True

    def _begin_epoch(self, frame: FrameHeader) -> BeginEpoch:
        if self._records.held_bytes:
            raise FrameError(
                f"epoch {frame.epoch} begins at {frame.offset}, within a record", LinkFault.PLACE
            )
        listed = entry_at(self._theirs, frame.epoch_start)
        epoch_id = listed.id if listed and listed.epoch == frame.epoch else ""
        self._entry = EpochEntry(frame.epoch, frame.epoch_start, epoch_id)
        return BeginEpoch(frame.epoch, frame.epoch_start, epoch_id)

    def _take_body(self) -> bool:
        """Keep what is here of the frame's body. Return False if there is nothing."""
        size = min(self._frame_left, len(self._data) - self._position)
        piece = memoryview(self._data)[self._position : self._position + size]
        self._frame_crc = raw_crc32(piece, self._frame_crc)
        self._digest.add(piece)
        self._pieces.append(piece)
        self._position += size
        self._frame_left -= size
        return size > 0

    def _expect_undamaged(self, frame: FrameHeader) -> None:
        """Look whether the body of a frame that is all there is the one that was sent."""
        if self._frame_crc != self._frame_crc_expected:
            raise FrameError(
                f"a frame of {frame.size} bytes at {frame.offset} that does not fit its checksum",
                LinkFault.CHECKSUM,
            )
        if frame.size and not self._digest.fits():
            raise FrameError(
                f"a frame of {frame.size} bytes at {frame.offset} whose digest is wrong: somebody"
                " changes packets, or security.authenticate_log_bytes is another there",
                LinkFault.DIGEST,
            )

    def _end_frame(self, frame: FrameHeader) -> None:
        """Take a whole frame: its pieces that were not taken yet, and what it says of the log."""
        for piece in self._pieces:
            self._records.add(piece)
        self._pieces.clear()
        self._frame = None
        self.confirm = frame.confirm
        self.flush_wanted = frame.flush_wanted

    def _expect_state(self, *states: FencedClientState) -> None:
        if self.state not in states:
            names = " or ".join(state.name for state in states)
            raise LocalHAError(f"the connection is in state {self.state.name}, expected {names}")
