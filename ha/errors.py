"""Errors of replication: the type says whose fault it was.

`LocalHAError` is a bug of ours or a disk of ours. `RemoteHAError` is the other end of the
connection: no correct peer sends this, so the connection is closed. A wire that broke is neither:
see `NetworkError` in `store/machine/errors.py`.
"""

import enum

from store.machine.errors import StoreError
from tandem.wire.feature_level import needed_for


class HAError(Exception):
    """Base of everything that replication raises."""


class LocalHAError(HAError):
    """A method was called in a state whose diagram does not allow it: a bug in the caller."""


class RemoteHAError(HAError):
    """The peer broke the protocol, or its log cannot be joined with ours. Close the connection."""


class SlaveAheadError(RemoteHAError):
    """A slave's log ends above the master's.

    The slave holds bytes the master never had, or lost: the two logs are different histories.
    Serving it would let them differ silently for ever, so it is refused until a person has
    decided which of the two histories to keep.
    """

    def __init__(self, *, slave_end: int, master_end: int) -> None:
        """Both arguments are physical offsets in bytes."""
        self.slave_end = slave_end
        self.master_end = master_end
        self.ahead_bytes = slave_end - master_end
        super().__init__(f"is ahead of the master by {self.ahead_bytes} bytes: refused")


class SlaveRefusedError(RemoteHAError):
    """The slave said that it cannot follow this master; its own log file says why."""

    def __init__(self, *, slave_end: int) -> None:
        """`slave_end` is the physical offset in bytes where the slave's log ends."""
        self.slave_end = slave_end
        super().__init__(
            f"cannot follow the master and stopped at offset {slave_end}: see the slave's log file"
        )


class SlaveTooOldError(RemoteHAError):
    """The slave's log ends before the oldest byte that the master still has."""

    def __init__(self, *, reported_offset: int, master_min_offset: int) -> None:
        """Both arguments are physical offsets in bytes."""
        self.reported_offset = reported_offset
        self.master_min_offset = master_min_offset
        super().__init__(
            f"is too far behind: reported offset {reported_offset}, but the master's log begins"
            f" at {master_min_offset}"
        )


class NegativeReportError(RemoteHAError):
    """A report below zero."""

    def __init__(self, *, reported_offset: int) -> None:
        """`reported_offset` is what arrived."""
        self.reported_offset = reported_offset
        super().__init__(f"reported offset {reported_offset}, which is below zero")


class ReportBeyondSentError(RemoteHAError):
    """A slave acknowledged bytes that were never sent to it."""

    def __init__(self, *, reported_offset: int, sent_offset: int) -> None:
        """Both arguments are physical offsets in bytes."""
        self.reported_offset = reported_offset
        self.sent_offset = sent_offset
        super().__init__(
            f"reported offset {reported_offset}, but only bytes below {sent_offset} were sent"
        )


class MalformedTransferError(RemoteHAError):
    """A transfer header whose size or offset no correct master sends."""

    def __init__(self, *, offset: int, size_bytes: int, size_bytes_max: int) -> None:
        """`offset` and `size_bytes` are the two header fields as they arrived."""
        self.offset = offset
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max
        super().__init__(
            f"transfer header with offset {offset} and size {size_bytes}"
            f" (allowed: offset >= 0, size 0..{size_bytes_max})"
        )


class OffsetMismatchError(RemoteHAError):
    """A frame does not continue where the bytes received so far end."""

    def __init__(self, *, offset: int, expected: int) -> None:
        """Both arguments are physical offsets in bytes."""
        self.offset = offset
        self.expected = expected
        super().__init__(f"frame begins at offset {offset}, expected {expected}")


class MasterBehindError(RemoteHAError):
    """The master has nothing to send although our log is not compared yet: its log is shorter."""

    def __init__(self, *, log_end: int, master_end: int) -> None:
        """Both arguments are physical offsets in bytes."""
        self.log_end = log_end
        self.master_end = master_end
        super().__init__(
            f"our log ends at {log_end}, {log_end - master_end} bytes ahead of the master's"
        )


class LogDivergedError(RemoteHAError):
    """The master's bytes differ from ours at an offset that both logs have.

    Nothing was appended. Retrying cannot help.
    """

    def __init__(self, *, offset: int) -> None:
        """`offset` is the physical offset of the first byte that differs."""
        self.offset = offset
        super().__init__(f"our log and the master's differ at offset {offset}")


class CorruptTransferError(RemoteHAError):
    """The master sent bytes that are not a valid record at their place in the log.

    Everything before `offset` was whole and has been handed out.
    """

    def __init__(self, *, offset: int, reason: str) -> None:
        """`offset` is the physical offset of the record, `reason` what is wrong with it."""
        self.offset = offset
        self.reason = reason
        super().__init__(f"bad record at offset {offset}: {reason}")


class DamagedLogError(RemoteHAError):
    """Our log is bad where it was compared: that is healed, and then it is compared anew."""


class DisputedLogError(RemoteHAError):
    """Our bytes and the master's differ, and whose have changed is being found out."""


class NotServed(enum.Enum):
    """Why a peer does not get what it asks for of the log."""

    TOO_MUCH = enum.auto()
    """Nothing, or more than a request may ask for."""
    TWO_FILES = enum.auto()
    """It is not in one file."""
    NOT_THERE = enum.auto()
    """Our log has not all of it."""
    NOT_CONFIRMED = enum.auto()
    """It may be of other masters than what the peer has."""
    DAMAGED = enum.auto()
    """It is bad here as well."""


class NotServedError(HAError):
    """This node cannot give a peer what it asks for of the log; the text says why."""

    def __init__(self, text: str, reason: NotServed) -> None:
        super().__init__(text)
        self.reason = reason


class NoPart(enum.Enum):
    """Why a peer's part of the log could not be had."""

    SILENT = enum.auto()
    """It could not be reached, did not answer in time, or not as a node does."""
    REFUSED = enum.auto()
    """It says why it does not give it."""
    UNPROVEN = enum.auto()
    """Its answer does not show that it knows the secret."""
    OTHER_PART = enum.auto()
    """What came is of another node, or not as long as what was asked for."""


class PeerSilentError(HAError):
    """A peer did not answer, or cannot give what it was asked for; the text says why.

    Attributes:
        cause: Why not.
    """

    def __init__(self, text: str, cause: NoPart = NoPart.SILENT) -> None:
        super().__init__(text)
        self.cause = cause


class EpochFileError(HAError):
    """The epoch file is damaged: nobody can say any more which master wrote which part."""

    def __init__(self, *, path: str, reason: str) -> None:
        """`reason` says what is wrong with the content."""
        self.path = path
        super().__init__(
            f"{path}: neither it nor its .bak can be read ({reason}); restore one of them, or move"
            " the whole store directory away: this node then copies the log from its master"
        )


class StoreLevelError(StoreError):
    """The directory is of a group whose feature level this version does not know.

    Attributes:
        level: The highest at which the node of this directory has seen its group.
        level_max: The highest that this version knows.
    """

    def __init__(self, path: str, level: int, level_max: int) -> None:
        super().__init__(
            f"{path}: this node has taken part in its group at feature level {level}, and this"
            f" version knows no level above {level_max}: install {needed_for(level)};"
            " see docs/upgrades.md"
        )
        self.level = level
        self.level_max = level_max


class EpochOrderError(LocalHAError):
    """An epoch may only begin above all that the list has."""

    def __init__(self, *, epoch: int, start: int, last_epoch: int) -> None:
        """`start` is the physical offset in bytes where `epoch` was to begin."""
        super().__init__(f"epoch {epoch} cannot begin at {start}: the list ends with {last_epoch}")


class EpochConflictError(RemoteHAError):
    """Two nodes disagree about where an epoch begins: their logs cannot be compared."""

    def __init__(self, *, epoch: int, own_start: int, their_start: int) -> None:
        """Both starts are physical offsets in bytes."""
        self.epoch = epoch
        super().__init__(
            f"epoch {epoch} begins at {own_start} here and at {their_start} there: it had two"
            " writers, or one of the epoch files is not what was written"
        )


class LinkFault(enum.Enum):
    """What is wrong with what the other side of the fenced link has sent."""

    SIZE = enum.auto()
    """It is larger than its kind may be."""
    CHECKSUM = enum.auto()
    """It was damaged on its way."""
    UNREADABLE = enum.auto()
    """It is no message of the link."""
    STRANGER = enum.auto()
    """What answers is not a node of a fenced group."""
    VERSION = enum.auto()
    """It speaks another version of the link."""
    UNEXPECTED = enum.auto()
    """It is a message, and not the one that comes now."""
    PROOF = enum.auto()
    """It does not show that it knows the secret."""
    SEAL = enum.auto()
    """Somebody has changed, left out or repeated it."""
    DIGEST = enum.auto()
    """Its bytes are not those of its head."""
    OTHER_NODE = enum.auto()
    """It is not the node that is meant."""
    EPOCH = enum.auto()
    """It is of another epoch, or master of one, than is served."""
    EPOCHS = enum.auto()
    """Its list of epochs cannot be that of its log."""
    PLACE = enum.auto()
    """It is about a place of the log where it cannot be."""
    VALUES = enum.auto()
    """It has numbers that no correct node sends."""


class LinkFaultError(RemoteHAError):
    """The other side of the fenced link has sent what no correct node sends us.

    Attributes:
        fault: What is wrong with it.
    """

    def __init__(self, text: str, fault: LinkFault) -> None:
        super().__init__(text)
        self.fault = fault


class HandshakeError(LinkFaultError):
    """What arrived is no handshake of the fenced link, or not one with us."""


class LinkRefusedError(RemoteHAError):
    """One side of the fenced link said why it does not serve the other, or follow it."""


class MasterLacksConfirmedError(RemoteHAError):
    """The master lacks what was confirmed, and now knows it: it has to give up its place."""


class MasterDeposedError(RemoteHAError):
    """The master of the link is not the one to follow: there is a newer epoch."""


class FrameError(LinkFaultError):
    """A frame of the fenced link that no correct master sends, or that was damaged on its way."""


class ReportError(LinkFaultError):
    """A report of the fenced link that no correct follower sends, or that was damaged."""
