"""RunningFlags: why a store takes no messages at the moment.

Some reasons go away (a disk has room again), some need a person (a failed sync). Each says so in
words, which senders of messages get as the reason of a refusal.

RocketMQ also has a flag that stops reads, and nothing that sets it.

Source: org.apache.rocketmq.store.RunningFlags of 5.3.3.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

import msgspec


class RunningFlag(enum.IntFlag):
    """One reason; values are RocketMQ's bits, but for the last two, which are ours."""

    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGIC_DISK_FULL = 64
    SLAVE = 256
    CLOSED = 512


_BLOCKS_DISPATCH: Final = (
    RunningFlag.NOT_WRITEABLE
    | RunningFlag.WRITE_LOGICS_QUEUE_ERROR
    | RunningFlag.WRITE_INDEX_FILE_ERROR
    | RunningFlag.LOGIC_DISK_FULL
)


_DISK_TROUBLE: Final = _BLOCKS_DISPATCH | RunningFlag.DISK_FULL


class StoreRefusal(msgspec.Struct, frozen=True):
    """Why a store does not do something now.

    Attributes:
        flags: The flags that forbid it; 0 where another reason than a flag does.
        text: The reasons in words.
    """

    flags: RunningFlag
    text: str


class RunningFlags:
    """The flags that are set, each with its reason in words."""

    def __init__(self) -> None:
        self._reasons: dict[RunningFlag, str] = {}
        self.refusal: StoreRefusal | None = None
        """Why no message is taken; None if messages are. A field: every put looks at it."""
        self.dispatch_refusal: StoreRefusal | None = None
        """Why queues and index must not be built any further; None if they may."""
        self.disk_trouble: StoreRefusal | None = None
        """What is wrong with the disks; None if nothing is."""
        self.is_slave = False
        """Whether SLAVE is set; a field as well."""
        self.is_not_writeable = False
        """Whether NOT_WRITEABLE is set; a field as well."""

    def set(self, flag: RunningFlag, reason: str) -> None:
        """Set a flag. A flag that is set keeps its first reason."""
        self._reasons.setdefault(flag, reason)
        self._update()

    def clear(self, flag: RunningFlag) -> None:
        """Take a flag back. Harmless if it is not set."""
        self._reasons.pop(flag, None)
        self._update()

    def is_set(self, flag: RunningFlag) -> bool:
        """True if this very flag is set."""
        return flag in self._reasons

    @property
    def may_dispatch(self) -> bool:
        """False if queues and index must not be built any further."""
        return self.dispatch_refusal is None

    def _refusal_of(self, flags: Sequence[RunningFlag]) -> StoreRefusal | None:
        if not flags:
            return None
        text = "; ".join(self._reasons[flag] for flag in flags)
        return StoreRefusal(RunningFlag(sum(flags)), text)

    def _update(self) -> None:
        flags = sorted(self._reasons)
        self.is_slave = RunningFlag.SLAVE in self._reasons
        self.is_not_writeable = RunningFlag.NOT_WRITEABLE in self._reasons
        self.dispatch_refusal = self._refusal_of([f for f in flags if f & _BLOCKS_DISPATCH])
        self.disk_trouble = self._refusal_of([f for f in flags if f & _DISK_TROUBLE])
        # A closed store has no other worries, and a slave takes no messages whatever its disks do.
        if flags and flags[-1] in (RunningFlag.CLOSED, RunningFlag.SLAVE):
            flags = flags[-1:]
        self.refusal = self._refusal_of(flags)


class Flagged:
    """What a `MessageStore` says of its flags, and who else than the store itself sets them."""

    flags: RunningFlags

    @property
    def is_slave(self) -> bool:
        """True if this store takes a master's bytes and no messages."""
        return self.flags.is_slave

    @property
    def refusal(self) -> StoreRefusal | None:
        """Why the store takes no messages; None if it does."""
        return self.flags.refusal

    def fence(self, reason: str) -> None:
        """Refuse messages from now on, with this reason. A master's bytes are taken."""
        self.flags.clear(RunningFlag.FENCED)
        self.flags.set(RunningFlag.FENCED, reason)

    def unfence(self) -> None:
        """Take `fence` back. Harmless if it was not called."""
        self.flags.clear(RunningFlag.FENCED)
