"""What nodes of a fenced group ask each other about their logs, to find and heal damage.

    LOG_FINGERPRINTS   of one closed file: the checksums of its blocks, and which epochs it is of
    LOG_BYTES          a part of the log as it is
    LOG_DAMAGED        "what you sent of this part is bad": the other one looks at it

Ours, not RocketMQ's. All three are signed as nodes sign their requests, and so are the answers of
the first two (see `request_signature`): nobody else can read a log so, or put bytes into one.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from tandem.wire.remoting_command import Int64
from tandem.wire.request_headers import Header

BYTES_MAX: Final = 256 * 1024
"""In one answer to LOG_BYTES: what a node reads and checks in less than a millisecond."""

BAD_RANGES_MAX: Final = 1000
"""In one answer; it says no more than these of what is in the file."""

BLOCKS_MAX: Final = 1 << 20
EPOCHS_MAX: Final = 20_000

Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class LogRangeHeader(Header, frozen=True):
    """A part of the log by physical offset, `end` excluded. Of LOG_FINGERPRINTS: the file's."""

    start: Int64
    end: Int64
    history: str | None = None
    """Of LOG_BYTES: of which masters the asking peer has it; see `ha.fenced.history`."""


class EpochPart(msgspec.Struct, frozen=True, array_like=True):
    """From `start` on the log was written by the master of `epoch`, which drew this id."""

    epoch: Offset
    start: Offset
    id: str = ""


class FileFingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """The checksums of one closed file; see `store.log.fingerprints`."""

    start: Offset
    size: Offset
    crcs: Annotated[bytes, msgspec.Meta(max_length=4 * BLOCKS_MAX)]
    """CRC-32 of each block, 4 bytes each."""
    written_from: Offset
    """Blocks from here on were taken from memory when they had just been written."""


class PeerLogPart(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of one part of its log: the answer to LOG_FINGERPRINTS."""

    node: str
    log_start: Offset
    confirm: Offset
    """Everything below it is confirmed, as far as the node knows."""
    log_end: Offset = 0
    """Where its log ends; 0 of a version that does not say so, and gives what is confirmed only."""
    epochs: Annotated[tuple[EpochPart, ...], msgspec.Meta(max_length=EPOCHS_MAX)] = ()
    """That of the first byte of the part, and those that begin in it."""
    bad: Annotated[tuple[tuple[Offset, Offset], ...], msgspec.Meta(max_length=BAD_RANGES_MAX)] = ()
    """What it knows to be bad in it, in order."""
    fingerprint: FileFingerprint | None = None
    """None if it has none."""
