"""RunningFlags: why a store takes no messages at the moment.

Some reasons go away (a disk has room again), some need a person (a failed sync). Each says so in
words, which senders of messages get as the reason of a refusal.

RocketMQ also has a flag that stops reads, and nothing that sets it.

Source: org.apache.rocketmq.store.RunningFlags of 5.3.3.
"""

from __future__ import annotations

import enum
from typing import Final


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


class RunningFlags:
    """The flags that are set, each with its reason in words."""

    def __init__(self) -> None:
        self._reasons: dict[RunningFlag, str] = {}
        self.refusal = ""
        """Why no message is taken; empty if messages are. A field: every put looks at it."""
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
        return not self.dispatch_refusal

    @property
    def dispatch_refusal(self) -> str:
        """Why queues and index must not be built any further; empty if they may."""
        return self._reasons_of(_BLOCKS_DISPATCH)

    @property
    def disk_trouble(self) -> str:
        """What is wrong with the disks; empty if nothing is."""
        return self._reasons_of(_DISK_TROUBLE)

    def _reasons_of(self, flags: RunningFlag) -> str:
        reasons = self._reasons
        return "; ".join(reasons[flag] for flag in sorted(reasons) if flag & flags)

    def _update(self) -> None:
        flags = sorted(self._reasons)
        self.is_slave = RunningFlag.SLAVE in self._reasons
        self.is_not_writeable = RunningFlag.NOT_WRITEABLE in self._reasons
        # A closed store has no other worries, and a slave takes no messages whatever its disks do.
        if flags and flags[-1] in (RunningFlag.CLOSED, RunningFlag.SLAVE):
            flags = flags[-1:]
        self.refusal = "; ".join(self._reasons[flag] for flag in flags)
