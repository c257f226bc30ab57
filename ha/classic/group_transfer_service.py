"""Decides when a put is replicated: a list of waiting answers, with no I/O and no clock in it.

    submit() --+--> answered at once: replicated already, or no slave can be waited for
               |
               +--> waiting --+--> PUT_OK               slave_acked() reached its end offset
                              +--> FLUSH_SLAVE_TIMEOUT  expire() found it past its deadline

A put waits for one condition alone: enough slaves hold the log up to its end. An
acknowledgement answers everybody it satisfies; one that comes at the last moment, or after the
deadline but before anybody looked, still counts.

Slaves are counted by *node name*: two connections of one node are one slave.

Two contracts:

- 4.x, the default: one slave is enough. With no slave, or none less than `max_gap_bytes` behind,
  the answer is SLAVE_NOT_AVAILABLE at once instead of a wait that cannot end well.
- RocketMQ 5, `in_sync_replicas` = k: the master and k - 1 slaves. k <= 1 never waits; the answer is
  never SLAVE_NOT_AVAILABLE.

A message so answered is in the master's log in any case: its outcome is unknown, not failed.

Source: RocketMQ 4.9 CommitLog.submitReplicaRequest and HAService.isSlaveOK; 5.3.3
CommitLog.handleHA and GroupTransferService, whose waiters are served in strict turn, are woken by
counting, and fail unseen when their turn comes late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ha.errors import LocalHAError
from store.machine.waiting_row import WaitingRow
from store.results import Done, PutMessageStatus

MIB: Final = 1024 * 1024

UNKNOWN: Final = -1


def _nothing() -> None:
    """The default of `after_release`."""


class SlaveProgress:
    """What the master knows of one slave by name. All offsets in bytes, -1 for unknown."""

    __slots__ = ("ack_offset", "connected", "request_offset", "trouble")

    def __init__(self) -> None:
        self.connected = False
        self.request_offset = UNKNOWN
        self.ack_offset = UNKNOWN
        self.trouble = ""
        """Why it was refused or left, until it acknowledges something again."""

    @property
    def position(self) -> int:
        """How far it is as far as we can tell; not all of it need be acknowledged."""
        return max(self.request_offset, self.ack_offset)


class GroupTransferService:
    """The puts of one master that wait for slaves. Owned by the `SlaveServer`.

    Invariant: nobody in `_waiting` is satisfied.
    """

    def __init__(
        self,
        slave_names: Iterable[str],
        *,
        max_gap_bytes: int,
        in_sync_replicas: int | None = None,
        after_release: Callable[[], None] = _nothing,
    ) -> None:
        self._slaves = {name: SlaveProgress() for name in slave_names}
        self._max_gap_bytes = max_gap_bytes
        self._in_sync_replicas = in_sync_replicas
        self._slaves_needed = 1 if in_sync_replicas is None else in_sync_replicas - 1
        self._waiting: WaitingRow[Done] = WaitingRow()
        self._replicated_offset = 0
        self._nearest_position = UNKNOWN
        self._after_release = after_release
        self.push2_slave_max_offset = 0
        """Highest offset ever acknowledged by any slave. Never falls."""

    @property
    def waiting_count(self) -> int:
        """How many puts are waiting."""
        return len(self._waiting)

    @property
    def slaves(self) -> dict[str, SlaveProgress]:
        """Every slave of the group by name, connected or not. Only to be looked at."""
        return self._slaves

    @property
    def replicated_offset(self) -> int:
        """Enough slaves hold every byte below this, 0 if too few are connected."""
        return self._replicated_offset

    # Events from the connections

    def slave_connected(self, name: str) -> None:
        """A slave dialled; whatever an older connection said is void."""
        slave = self._slave(name)
        slave.connected = True
        slave.request_offset = slave.ack_offset = UNKNOWN
        self._slaves_changed()

    def slave_attached(self, name: str, request_offset: int) -> None:
        """Its first report came: it wants the log from `request_offset` on."""
        slave = self._slave(name)
        slave.request_offset = request_offset
        self._slaves_changed()

    def slave_acked(self, name: str, offset: int) -> None:
        """The slave holds every byte below `offset`. Answers the puts that waited for it."""
        slave = self._slave(name)
        slave.ack_offset = offset
        slave.trouble = ""
        self._slaves_changed()
        self.push2_slave_max_offset = max(self.push2_slave_max_offset, offset)
        if self._release():
            self._after_release()

    def slave_lost(self, name: str, trouble: str = "") -> None:
        """Its connection ended; `trouble` says why if it is more than a lost wire.

        Waiting puts go on waiting: it may be back before their deadline.
        """
        slave = self._slave(name)
        slave.connected = False
        slave.request_offset = slave.ack_offset = UNKNOWN
        slave.trouble = trouble or slave.trouble
        self._slaves_changed()

    # Puts

    def submit(self, end_offset: int, deadline: float, done: Done) -> None:
        """Call `done` once the log is replicated up to `end_offset`, or it is clear that it is not.

        That may be before this returns. `after_release` is not called then: the caller is about
        to send anyway.

        Args:
            end_offset: the first byte after the put. Never less than that of an earlier call.
            deadline: on the clock that `expire` is called with. Never less than an earlier one.
            done: receives the outcome.
        """
        decision = self.decide(end_offset)
        if decision is not None:
            done(*decision)
            return
        self._waiting.add(end_offset, deadline, done)

    def decide(self, end_offset: int) -> tuple[PutMessageStatus, str] | None:
        """Return the outcome of a put if it is clear by now, or None if it has to wait."""
        if self._slaves_needed <= 0 or self._replicated_offset >= end_offset:
            return PutMessageStatus.PUT_OK, ""
        if self._in_sync_replicas is not None:
            return None
        nearest = self._nearest_position
        if nearest != UNKNOWN and end_offset - nearest < self._max_gap_bytes:
            return None
        return PutMessageStatus.SLAVE_NOT_AVAILABLE, self._why_not_available(end_offset)

    def expire(self, now: float) -> None:
        """Answer every put whose deadline has passed; satisfied ones have left."""
        expired = self._waiting.take_expired(now)
        for end_offset, done in expired:
            done(PutMessageStatus.FLUSH_SLAVE_TIMEOUT, self._why_late(end_offset))
        if expired:
            self._after_release()

    def next_deadline(self) -> float | None:
        """Return when `expire` is due next, or None if nobody waits."""
        return self._waiting.next_deadline

    # For people

    def in_sync_slave_count(self, log_end: int) -> int:
        """Return how many slaves are in sync; see `why_not_in_sync`."""
        return sum(self.why_not_in_sync(name, log_end) is None for name in self._slaves)

    def why_not_in_sync(self, name: str, log_end: int) -> str | None:
        """Return why the slave is not in sync with a log that ends at `log_end`, None if it is.

        In sync means connected, its log compared with ours, and less than the maximum gap behind.
        """
        slave = self._slave(name)
        if not slave.connected:
            return slave.trouble or "is not connected"
        if slave.request_offset == UNKNOWN:
            return "is connected but has not reported yet"
        if slave.ack_offset == UNKNOWN and slave.request_offset > 0:
            return "is connected but has not confirmed its log yet"
        gap_bytes = log_end - slave.position
        return self._behind(gap_bytes) if gap_bytes >= self._max_gap_bytes else None

    def _slave(self, name: str) -> SlaveProgress:
        if name not in self._slaves:
            raise LocalHAError(f"{name} is not a slave of this group")
        return self._slaves[name]

    def _slaves_changed(self) -> None:
        """Compute what is looked at for every put."""
        nearest = UNKNOWN
        acked = []
        for slave in self._slaves.values():
            acked.append(slave.ack_offset)
            nearest = max(nearest, slave.ack_offset, slave.request_offset)
        self._nearest_position = nearest
        if self._slaves_needed <= 0:
            return
        acked.sort(reverse=True)
        enough = len(acked) >= self._slaves_needed
        self._replicated_offset = max(0, acked[self._slaves_needed - 1]) if enough else 0

    def _release(self) -> bool:
        """Answer every put that is satisfied. Return whether there was one."""
        released = self._waiting.take_reached(self._replicated_offset)
        for done in released:
            done(PutMessageStatus.PUT_OK, "")
        return bool(released)

    def _behind(self, gap_bytes: int) -> str:
        limit = f"{self._max_gap_bytes / MIB:.0f} MiB"
        if self._max_gap_bytes % MIB:
            return f"is {gap_bytes} bytes behind, limit {self._max_gap_bytes} bytes"
        return f"is {gap_bytes // MIB} MiB behind, limit {limit}"

    def _why_not_available(self, end_offset: int) -> str:
        connected = {name: slave for name, slave in self._slaves.items() if slave.connected}
        if not connected:
            troubles = [f"slave {n} {s.trouble}" for n, s in self._slaves.items() if s.trouble]
            return "; ".join(["no slave connected", *troubles])
        return "; ".join(f"slave {n} {self._why_far(s, end_offset)}" for n, s in connected.items())

    def _why_far(self, slave: SlaveProgress, end_offset: int) -> str:
        if slave.position == UNKNOWN:
            return "is connected but has not reported yet"
        return self._behind(end_offset - slave.position)

    def _why_late(self, end_offset: int) -> str:
        states = ", ".join(
            f"{name} {self._how_late(slave, end_offset)}" for name, slave in self._slaves.items()
        )
        count = self._slaves_needed
        wanted = "no slave" if count == 1 else f"fewer than {count} slaves"
        return (
            f"{wanted} acknowledged offset {end_offset} in time ({states or 'no slave configured'})"
        )

    def _how_late(self, slave: SlaveProgress, end_offset: int) -> str:
        if not slave.connected:
            return slave.trouble or "is not connected"
        if slave.ack_offset == UNKNOWN:
            return "has acknowledged nothing yet"
        if slave.ack_offset >= end_offset:
            return "acknowledged it"
        return f"acknowledged {slave.ack_offset}, {end_offset - slave.ack_offset} bytes short"
