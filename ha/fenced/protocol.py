"""The wire of the fenced link: a handshake of messages, then frames one way, reports the other.

The follower dials. Every handshake message is {size, crc32, payload}: both numbers 4 bytes
big-endian and unsigned, the checksum of the payload, the payload JSON.

    master    CHALLENGE  its name, which version, a number used once
    follower  HELLO      its name, the epoch it has promised, its own number, a proof
    master    WELCOME    epoch, all epochs, bounds of its log, a proof; or REFUSED and why
    follower  ATTACH     where to begin, and a checksum of its last bytes before that; or
              OBJECTION  everything below here was confirmed, and the master's log lacks some of it
    master    JOINED     its own checksum of the same bytes

A proof is an HMAC-SHA256 under the group's secret over both numbers and everything the message
says. So neither side talks to a node that does not know the secret, and what somebody has listened
to cannot be repeated. What follows carries seals, see `ha.fenced.seal`, beside its checksums.

Frame, master to follower, a head of 104 bytes and a body:

    state        4  2
    size         4  body length in bytes; 0 is a heartbeat
    offset       8  physical offset of the first body byte
    epoch        4  of the master that wrote these bytes; 0 for what is older than all epochs
    flags        4  0
    epoch start  8  where that epoch begins
    confirm      8  below this every replica that must have the log has it
    flush wanted 8  the follower is asked to make its log durable up to here
    header crc   4  CRC-32 of the 48 bytes before it, so that a damaged size is not waited for
    crc          4  CRC-32 of those 48 bytes and the body
    digest      32  SHA-256 of the body, or zeros
    seal        16  of the 88 bytes before it
    body      size  commit log, verbatim: of one epoch, of one file, cut anywhere

Report, follower to master, 48 bytes:

    state     4  2
    epoch     4  of the master it follows
    written   8  end of its log
    flushed   8  below this it is durable
    crc       4  CRC-32 of the 24 bytes before it
    reserved  4  0
    seal     16  of the 32 bytes before it

Which version of it is spoken, the master's CHALLENGE says, by the feature level of the group: see
`tandem.wire.feature_level`. HELLO says more from version 4 on.

All integers are big-endian. Frames hold what those of RocketMQ's auto-switch HA hold, and more.

Source: RocketMQ 5.3.3, store/ha/autoswitch/AutoSwitchHAConnection.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from ha.errors import FrameError, HandshakeError, LinkFault, ReportError
from ha.fenced.epochs import EpochEntry
from ha.fenced.seal import DIGEST_BYTES, SEAL_BYTES
from ha.link.limits import TRANSFER_BODY_BYTES_MAX
from tandem.wire.crc import raw_crc32
from tandem.wire.feature_level import LEVEL_MIN, feature_level
from tandem.wire.group_state import EPOCH_MAX
from tandem.wire.store_layout import OFFSET_MAX
from tandem.wire.untrusted import UnreadableError, json_decoder

MAGIC: Final = "TandemMQ-HA"

VERSION: Final = feature_level(LEVEL_MIN).link
"""That of the lowest feature level."""
LEVELS_VERSION: Final = 4
"""From this version on HELLO says which program and which feature level the follower is of."""

STATE_TRANSFER: Final = 2

FRAME_HEADER: Final = struct.Struct(">iiqiiqqqII")
REPORT: Final = struct.Struct(">iiqqII")
CHECKED_HEADER_BYTES: Final = 48
CHECKED_REPORT_BYTES: Final = 24
_CHECKED_HEADER: Final = struct.Struct(">iiqiiqqq")
_CHECKED_REPORT: Final = struct.Struct(">iiqq")
_CRCS: Final = struct.Struct(">II")

assert FRAME_HEADER.size == 56
assert REPORT.size == 32
assert _CHECKED_HEADER.size == CHECKED_HEADER_BYTES
assert _CHECKED_REPORT.size == CHECKED_REPORT_BYTES

HEAD_BYTES: Final = FRAME_HEADER.size + DIGEST_BYTES + SEAL_BYTES
"""A frame's header, the digest of its body, and the seal of both."""

SEALED_REPORT_BYTES: Final = REPORT.size + SEAL_BYTES

OTHER_SECRET: Final = (
    "was started with another secret; give all machines the same secret file, see"
    " cluster.secret_file"
)

ENVELOPE: Final = struct.Struct(">II")

HANDSHAKE_BYTES_MAX: Final = 1024 * 1024
"""The largest WELCOME."""

STRANGER_BYTES_MAX: Final = 4096
"""The largest message taken from a node that has proved nothing yet, and the largest ATTACH."""

EPOCHS_SENT_MAX: Final = 20_000
"""A WELCOME carries the newest of them, as many as fit into a message."""

CHECKED_BYTES: Final = 64 * 1024
"""How many bytes before the joint of two logs are compared, if both still have them."""

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=255)]
Proof: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
Checksum: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]
Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]


class Challenge(msgspec.Struct, frozen=True, kw_only=True, tag="CHALLENGE"):
    """The master's first word."""

    magic: Name = MAGIC
    version: int = VERSION
    nonce: Name


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="HELLO"):
    """The node that wants to follow."""

    version: int = VERSION
    """That of the CHALLENGE."""
    cluster: Name
    group: Name
    node: Name
    incarnation: Name
    epoch: Epoch
    """The follower's promise: it takes nothing from a master of a lower epoch."""
    file_size_bytes: Offset
    """Of its log files: bytes can be copied only between logs of equal files."""
    nonce: Name
    proof: Proof = ""
    program: Name | msgspec.UnsetType = msgspec.UNSET
    """The follower's version of TandemMQ."""
    level_max: int | msgspec.UnsetType = msgspec.UNSET
    """The highest feature level that it knows."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="WELCOME"):
    """What the follower needs to find out whether, and from where, it can follow."""

    epoch: Epoch
    node: Name
    incarnation: Name
    epochs: Annotated[tuple[EpochEntry, ...], msgspec.Meta(max_length=EPOCHS_SENT_MAX)]
    log_start: Offset
    log_end: Offset
    confirm: Offset
    proof: Proof = ""


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="REFUSED"):
    """Why not, in words. It proves nothing: read it, do not believe it."""

    reason: Annotated[str, msgspec.Meta(max_length=1000)]


class Attach(msgspec.Struct, frozen=True, kw_only=True, tag="ATTACH"):
    """Begin to send at `offset`: the end of the follower's log, equal to the master's below it."""

    offset: Offset
    check_from: Offset
    checksum: Checksum
    """Of the follower's bytes from `check_from` to `offset`; see `ha.fenced.joint`."""
    proof: Proof = ""


def check_from(joint: int, own_start: int, their_start: int) -> int:
    """Return from where on the bytes before `joint` are compared. All are physical offsets."""
    return min(joint, max(joint - CHECKED_BYTES, own_start, their_start))


class Objection(msgspec.Struct, frozen=True, kw_only=True, tag="OBJECTION"):
    """The two logs part at `parting`, but everything below `confirm` was confirmed."""

    parting: Offset
    confirm: Offset
    proof: Proof = ""


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag="JOINED"):
    """The master's checksum of the bytes that the follower named. If it is another, that is all."""

    checksum: Checksum
    proof: Proof = ""


Proving = TypeVar("Proving", Hello, Welcome, Attach, Objection, Joined)

Proven: TypeAlias = Hello | Welcome | Attach | Objection | Joined

HandshakeMessage: TypeAlias = Challenge | Hello | Welcome | Refused | Attach | Objection | Joined

_decode: Final = json_decoder(HandshakeMessage)


def why_no_version(version: int, level_max: int) -> str | None:
    """Return why a link of this version is not for a node of this highest level; None if it is."""
    low, high = VERSION, feature_level(level_max).link
    if low <= version <= high:
        return None
    words = f"it speaks version {version} of the link, this node {low} to {high}"
    if version < low:
        return f"{words}: it has to be upgraded"
    return f"{words}: its group is at a feature level above {level_max}; see docs/upgrades.md"


def encode_message(message: HandshakeMessage) -> bytes:
    """Return a handshake message as it goes over the wire."""
    payload = msgspec.json.encode(message)
    return ENVELOPE.pack(len(payload), raw_crc32(payload)) + payload


def decode_message(data: bytes, bytes_max: int) -> tuple[HandshakeMessage, int] | None:
    """Return the message at the beginning of `data` and its size; None if it is not all there.

    Raises:
        HandshakeError: it is too large, damaged, or no message of this link.
    """
    if len(data) < ENVELOPE.size:
        return None
    size, crc = ENVELOPE.unpack_from(data)
    if size > bytes_max:
        raise HandshakeError(
            f"a handshake message of {size} bytes (at most {bytes_max})", LinkFault.SIZE
        )
    end = ENVELOPE.size + size
    if len(data) < end:
        return None
    payload = data[ENVELOPE.size : end]
    if raw_crc32(payload) != crc:
        raise HandshakeError(
            "a handshake message that does not fit its checksum", LinkFault.CHECKSUM
        )
    try:
        return _decode(payload), end
    except UnreadableError as error:
        raise HandshakeError(
            f"a handshake message that cannot be read: {error}", LinkFault.UNREADABLE
        ) from error


def proven(message: Proving, secret: str, *nonces: str) -> Proving:
    """Return the message with its proof. `nonces`: the master's, then the follower's."""
    return msgspec.structs.replace(message, proof=_proof(message, secret, nonces))


def is_proven(message: Proven, secret: str, *nonces: str) -> bool:
    """Say whether the sender knows the secret, in a time that reveals nothing about it."""
    return hmac.compare_digest(message.proof.encode(), _proof(message, secret, nonces).encode())


def _proof(message: Proven, secret: str, nonces: tuple[str, ...]) -> str:
    said = msgspec.json.encode([nonces, msgspec.structs.replace(message, proof="")])
    return hmac.new(secret.encode(), said, hashlib.sha256).hexdigest()


class FrameHeader(msgspec.Struct, frozen=True):
    """The fields of a frame that say something. Offsets and sizes in bytes."""

    size: int
    offset: int
    epoch: int
    epoch_start: int
    confirm: int
    flush_wanted: int


def encode_frame_header(header: FrameHeader, body: bytes | memoryview) -> bytes:
    """Return the 56 bytes that go before `body`."""
    checked = _CHECKED_HEADER.pack(
        STATE_TRANSFER,
        header.size,
        header.offset,
        header.epoch,
        0,
        header.epoch_start,
        header.confirm,
        header.flush_wanted,
    )
    crc = raw_crc32(checked)
    return checked + _CRCS.pack(crc, raw_crc32(body, crc) if header.size else crc)


def decode_frame_header(data: bytes, position: int) -> tuple[FrameHeader, int, int]:
    """Return a header, its own checksum to go on from, and the checksum that the frame must have.

    Raises:
        FrameError: it is damaged, or no correct master sends it.
    """
    state, size, offset, epoch, flags, epoch_start, confirm, flush_wanted, header_crc, crc = (
        FRAME_HEADER.unpack_from(data, position)
    )
    if raw_crc32(data[position : position + CHECKED_HEADER_BYTES]) != header_crc:
        raise FrameError("a frame whose header does not fit its checksum", LinkFault.CHECKSUM)
    if state != STATE_TRANSFER or flags:
        raise FrameError(f"a frame of state {state} with flags {flags}", LinkFault.VALUES)
    if not 0 <= size <= TRANSFER_BODY_BYTES_MAX or not 0 <= offset <= OFFSET_MAX - size:
        raise FrameError(f"a frame of {size} bytes at offset {offset}", LinkFault.VALUES)
    if epoch < 0 or min(epoch_start, confirm, flush_wanted) < 0:
        raise FrameError(
            f"a frame of epoch {epoch} from {epoch_start} on, confirm {confirm},"
            f" flush wanted {flush_wanted}",
            LinkFault.VALUES,
        )
    header = FrameHeader(size, offset, epoch, epoch_start, confirm, flush_wanted)
    return header, header_crc, crc


class Report(msgspec.Struct, frozen=True):
    """How far a follower's log is written and flushed, in bytes."""

    epoch: int
    written: int
    flushed: int


def encode_report(report: Report) -> bytes:
    """Return the 32 bytes of a report."""
    checked = _CHECKED_REPORT.pack(STATE_TRANSFER, report.epoch, report.written, report.flushed)
    return checked + _CRCS.pack(raw_crc32(checked), 0)


def decode_report(data: bytes, position: int) -> Report:
    """Return the report that begins at `position`.

    Raises:
        ReportError: it is damaged, or no correct follower sends it.
    """
    state, epoch, written, flushed, crc, reserved = REPORT.unpack_from(data, position)
    if raw_crc32(data[position : position + CHECKED_REPORT_BYTES]) != crc or reserved:
        raise ReportError("a report that does not fit its checksum", LinkFault.CHECKSUM)
    if state != STATE_TRANSFER or not 0 <= flushed <= written:
        raise ReportError(
            f"a report of state {state}: written {written}, flushed {flushed}", LinkFault.VALUES
        )
    return Report(epoch, written, flushed)
