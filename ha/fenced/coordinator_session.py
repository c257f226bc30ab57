"""One node's standing with the coordinator: its lease, its record, and what it knows of the group.

    run --+-- _keep_registered   lease --> record, if there is none --> keep-alives --> lost --.
          |       ^----------------------------------------------------------------------------'
          +-- _poll              reads all keys of the group, at least once per interval
          +-- _watch             has them read at once when something has changed
          `-- _republish         keeps the node's record roughly true

The record is written only where there is none: so a directory that was copied, or a process that
was started twice, does not become a second node of the same name. After a kill -9 the record of
the process before remains until its lease ends, or its supervisor revokes it.

What is known of the group never goes back to an older revision. Nothing here decides anything.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

import trio

from ha.fenced.config import FencedConfig
from ha.fenced.group_view import GroupView, read_view
from ha.fenced.lease import LeaseDeadline
from ha.fenced.punctuality import Punctuality
from ha.fenced.session_parts import GroupListener, SelfKnowledge
from store.machine.errors import StoreError
from store.machine.signal import Signal
from tandem.coordinator.interface import (
    Compare,
    Coordinator,
    CoordinatorError,
    CoordinatorUnavailableError,
    Delete,
    Lease,
    LeaseLostError,
    Put,
    TransactionResult,
)
from tandem.wire.group_state import (
    GroupKeys,
    GroupState,
    LeaderRecord,
    LifeRecord,
    MalformedGroupRecordError,
    NodeRecord,
    encode_record,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

CALL_SECONDS_MAX: Final = 2.0
"""For one answer of the coordinator: longer than an election among etcd's members takes, shorter
than a lease."""

KEEP_ALIVE_TRIES: Final = 4
"""How many keep-alives without an answer fit into one time to live."""

RETRY_SECONDS: Final = 0.2
REGISTER_RETRY_SECONDS: Final = 0.5
REPUBLISH_SECONDS: Final = 1.0
FAREWELL_SECONDS: Final = 1.0


class CoordinatorSession:
    """The session of one round of one node. `session_id` is a random name nobody else has."""

    def __init__(
        self,
        config: FencedConfig,
        coordinator: Coordinator,
        *,
        session_id: str,
        boottime: Callable[[], float],
        own: SelfKnowledge,
        punctuality: Punctuality | None = None,
    ) -> None:
        """Nothing happens before `run`.

        Args:
            config: names, times.
            coordinator: where everything is kept.
            session_id: goes into all records of this round.
            boottime: CLOCK_BOOTTIME in seconds.
            own: what the node knows of itself.
            punctuality: what its process knows of how it is run.
        """
        self._config = config
        self._coordinator = coordinator
        self._boottime = boottime
        self._own = own
        self.punctuality = punctuality or Punctuality()
        self.keys = GroupKeys(config.cluster, config.group)
        self.session_id = session_id
        self.lease: LeaseDeadline | None = None
        """None while this node is not registered."""
        self.view: GroupView | None = None
        """The group's keys as last read; None before the first time."""
        self.changed = Signal()
        """Notified when `view` or `lease` has changed."""
        self.trouble = ""
        """Why the coordinator cannot be used at the moment, in words."""
        self._lease_id = 0
        self._published: NodeRecord | None = None
        self._life: LifeRecord | None = None
        self._record_revision = 0
        self._read_wanted = Signal()
        self._is_read_wanted = False
        self._lost = trio.Event()
        self._listener: GroupListener
        """Given to `run`; nothing is read or written before."""

    @property
    def lease_id(self) -> int:
        """Id of the lease; 0 while there is none."""
        return self._lease_id if self.lease else 0

    def holds(self) -> bool:
        """True if this node is registered and may rely on it in this very step."""
        return self.lease is not None and self.lease.holds(self._boottime())

    async def run(self, listener: GroupListener) -> None:
        """Keep up the session until cancelled. Nothing else is called before."""
        self._listener = listener
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_registered)
            nursery.start_soon(self._poll)
            nursery.start_soon(self._watch)
            nursery.start_soon(self._republish)

    # -- calls -----------------------------------------------------------------------------------

    async def refresh(self) -> GroupView:
        """Read all keys of the group now and return them.

        Raises:
            CoordinatorError: they could not be read.
        """
        # A written record counts as known: it may be gone before it has been read.
        known = max(self.view.revision if self.view else 0, self._record_revision)
        snapshot = await limited(self._coordinator.read(self.keys.prefix))
        try:
            view = read_view(snapshot, self.keys, self._config.level_max)
        except MalformedGroupRecordError as error:
            self._tell(f"cannot read the group's records: {error}")
            raise CoordinatorUnavailableError(str(error)) from error
        self._tell("")
        if view.revision < known:
            self._went_back(known, view.revision)
        if self.view is None or view.revision >= self.view.revision:
            is_news = self.view is None or view.revision > self.view.revision
            self.view = view
            self._note_own_record(view)
            if is_news:
                self._listener.group_changed(view)
                self.changed.notify()
        return self.view

    def _went_back(self, known: int, revision: int) -> None:
        """What was known before this reading began is not there any more.

        Only a coordinator that was set back does that, and nothing known of it counts.
        """
        _log.error(
            "the coordinator went back from revision %d to %d: was it restored from a backup?",
            known,
            revision,
        )
        self.view = None
        self._lost.set()

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Put | Delete]
    ) -> TransactionResult:
        """Do all operations if all compares hold.

        Raises:
            CoordinatorError: see `tandem.coordinator.interface`.
        """
        return await limited(self._coordinator.transact(compares, operations))

    async def publish(self) -> None:
        """Write the node's record as it is now.

        Raises:
            CoordinatorError: it may not have been written.
        """
        record = self._own.describe()
        if not self._record_revision or self.lease is None or self.view is None:
            raise CoordinatorUnavailableError("this node is not registered")
        key, lease_id = self.keys.node(self._config.name), self._lease_id
        life = self._next_life(self.view)
        operations: list[Put | Delete] = [Put(key, encode_record(record), lease_id)]
        if life is not None and life != self._life:
            operations.append(Put(self.keys.life(record.node), encode_record(life)))
        result = await self.transact([Compare(key, self._record_revision)], operations)
        if result.succeeded and lease_id == self._lease_id:
            self._published, self._record_revision = record, result.revision
            self._remembers(life)
        elif not result.succeeded:
            await self.refresh()

    async def close(self) -> None:
        """End the lease, and the records that depend on it; if not in time, it ends by itself."""
        if self.lease is not None:  # an older copy of the directory shows by what is said now
            with trio.move_on_after(FAREWELL_SECONDS, shield=True), suppress(CoordinatorError):
                await self.publish()
        lease_id, self.lease, self._lease_id = self._lease_id, None, 0
        if not lease_id:
            return
        with trio.move_on_after(FAREWELL_SECONDS, shield=True):
            try:
                await self._coordinator.revoke(lease_id)
            except CoordinatorError as error:
                _log.info("the lease could not be revoked, it ends by itself: %s", error)

    async def replace_state(
        self,
        state: GroupState,
        *,
        state_revision: int,
        leader_revision: int,
        gives_up: bool = False,
    ) -> TransactionResult:
        """Write `state` if neither it nor our leader record has changed since these revisions.

        With `gives_up`, the leader record is deleted in the same transaction.

        Raises:
            CoordinatorError: it may have been written.
        """
        compares = [
            Compare(self.keys.state, state_revision),
            Compare(self.keys.leader, leader_revision),
        ]
        operations: list[Put | Delete] = [Put(self.keys.state, encode_record(state))]
        if gives_up:
            operations.append(Delete(self.keys.leader))
        return await self.transact(compares, operations)

    async def give_up_leader(
        self, leader_revision: int, state: GroupState | None, state_revision: int
    ) -> None:
        """Delete our leader record; write `state`, which says why, if it has not changed.

        Raises:
            CoordinatorError: it may still be there.
        """
        if state is not None:
            result = await self.replace_state(
                state,
                state_revision=state_revision,
                leader_revision=leader_revision,
                gives_up=True,
            )
            if result.succeeded:
                return
        leader = self.keys.leader
        await self.transact([Compare(leader, leader_revision)], [Delete(leader)])

    # -- registration and lease ------------------------------------------------------------------

    async def _keep_registered(self) -> None:
        while True:
            try:
                await self._register()
                await self._keep_alive()
            except LeaseLostError as error:
                self._lease_is_lost(f"the lease is gone ({error})")
            except CoordinatorError as error:
                self._tell(str(error))
                await trio.sleep(REGISTER_RETRY_SECONDS)

    async def _register(self) -> None:
        """Take a lease and write the node's record, once there is none of another process.

        Raises:
            CoordinatorError: try again from the beginning.
        """
        name = self._config.name
        key, life_key = self.keys.node(name), self.keys.life(name)
        view = await self._wait_for_no_record()
        try:
            self._own.judge(view)
        except StoreError as error:
            raise CoordinatorUnavailableError(f"this node cannot register: {error}") from error
        life = self._next_life(view)
        asked_at = self._boottime()
        lease = await limited(self._coordinator.grant(math.ceil(self._config.lease_ttl_ms / 1000)))
        self._lease_id = lease.lease_id
        record = self._own.describe()
        operations: list[Put | Delete] = [Put(key, encode_record(record), lease.lease_id)]
        if life is not None:
            operations.append(Put(life_key, encode_record(life)))
        was = view.life_revisions.get(name, 0)
        try:
            result = await self.transact([Compare(key, 0), Compare(life_key, was)], operations)
        except CoordinatorError:
            # The record may have been written. With its lease it goes away again.
            await self.close()
            raise
        if not result.succeeded:
            await self.close()
            return
        self._remembers(life)
        self._registered(lease, asked_at, record, result.revision)

    def _next_life(self, view: GroupView) -> LifeRecord | None:
        """Return what is to be remembered of this node.

        Raises:
            CoordinatorUnavailableError: its own disk does not take it: do not register.
        """
        try:
            return self._own.next_life(view)
        except StoreError as error:
            raise CoordinatorUnavailableError(f"this node cannot register: {error}") from error

    def _remembers(self, life: LifeRecord | None) -> None:
        if life is not None:
            self._life = life
            self._own.remembered(life)

    def _registered(self, lease: Lease, asked_at: float, record: NodeRecord, revision: int) -> None:
        self.lease = LeaseDeadline(lease.ttl_seconds, asked_at)
        self._published, self._record_revision = record, revision
        self._lost = trio.Event()
        words = "this node is registered at the coordinator as %s, lease of %d s"
        _log.info(words, record.node, lease.ttl_seconds)
        self.changed.notify()
        self._want_read()

    async def _wait_for_no_record(self) -> GroupView:
        """Return what is known of the group when no process of this name is registered.

        Raises:
            CoordinatorError: nothing is known.
        """
        has_told = False
        while (view := await self.refresh()).nodes.get(self._config.name) is not None:
            if not has_told:
                _log.warning(
                    "%s is registered already, by the process before this or by another one:"
                    " waiting until its lease ends. If it does not, two processes run as %s",
                    self._config.name,
                    self._config.name,
                )
            has_told = True
            with trio.move_on_after(REGISTER_RETRY_SECONDS):
                await self.changed.wait()
        return view

    async def _keep_alive(self) -> None:
        """Renew the lease until it is lost.

        Raises:
            LeaseLostError: it is.
        """
        interval_seconds = self._config.keepalive_interval_ms / 1000
        limit_seconds = min(CALL_SECONDS_MAX, self._config.lease_ttl_ms / 1000 / KEEP_ALIVE_TRIES)
        lease_id, lease = self._lease_id, self.lease
        self.punctuality.registered()
        while lease is not None:
            self._say(self.punctuality.asks(self._config, trio.current_time()))
            asked_at = self._boottime()
            pause_seconds = interval_seconds
            try:
                ttl_seconds = await limited(self._coordinator.keep_alive(lease_id), limit_seconds)
                lease.renewed(ttl_seconds, asked_at)
            except LeaseLostError:
                raise
            except CoordinatorError as error:
                self._tell(f"no keep-alive: {error}")
                pause_seconds = min(RETRY_SECONDS, interval_seconds)
            due = trio.current_time() + pause_seconds
            with trio.move_on_at(due):
                await self._lost.wait()
                raise LeaseLostError("its record is gone, or the coordinator was set back")
            self.punctuality.slept(due, trio.current_time())

    def _lease_is_lost(self, reason: str) -> None:
        if self.lease is None:
            return
        self.lease = None
        self._lease_id = self._record_revision = 0
        self._published = None
        _log.warning("this node is not registered at the coordinator any more: %s", reason)
        self._listener.lease_lost(reason)
        self.changed.notify()

    def _note_own_record(self, view: GroupView) -> None:
        """Follow the revision of our own record; without the record the lease is gone."""
        name = self._config.name
        record = view.nodes.get(name)
        if self.lease is None or view.revision < self._record_revision:
            return
        if record is not None and record.session == self.session_id:
            self._record_revision = view.node_revisions[name]
            self._published = record
        else:
            self._lost.set()

    # -- what is known of the group --------------------------------------------------------------

    async def _poll(self) -> None:
        interval_seconds = self._config.coordinator_poll_interval_ms / 1000
        while True:
            self._is_read_wanted = False
            try:
                await self.refresh()
            except CoordinatorError as error:
                self._tell(str(error))
                self._is_read_wanted = False
            if not self._is_read_wanted:
                with trio.move_on_after(interval_seconds):
                    await self._read_wanted.wait()

    def _want_read(self) -> None:
        """Have the keys read now, or once more if they are being read."""
        self._is_read_wanted = True
        self._read_wanted.notify()

    async def _watch(self) -> None:
        """Have the keys read when one of them has changed. Polling goes on without it."""
        while True:
            while self.view is None:
                await self.changed.wait()
            try:
                start = self.view.revision + 1
                async with self._coordinator.watch(self.keys.prefix, start) as changes:
                    async for _ in changes:
                        self._want_read()
            except CoordinatorError:
                pass  # polling finds out whether the coordinator can be reached
            await trio.sleep(RETRY_SECONDS)

    async def _republish(self) -> None:
        told: object = None
        waited_seconds = 0.0
        while True:
            due = trio.current_time() + RETRY_SECONDS
            self.punctuality.sleeps_until(due)
            await trio.sleep_until(due)
            self.punctuality.slept(due, trio.current_time())
            self._say(self.punctuality.at_start(self._config, trio.current_time()))
            waited_seconds += RETRY_SECONDS
            record = self._own.describe()
            news = record.trouble, record.damage, record.is_complete
            if news == told and waited_seconds < REPUBLISH_SECONDS:
                continue
            waited_seconds, told = 0.0, news
            if self._published is not None and record != self._published:
                try:
                    await self.publish()
                except CoordinatorError:
                    told = None  # polling and keep-alives say what is wrong

    def _say(self, words: str | None) -> None:
        if words is not None:
            _log.warning("this machine is too slow: %s", words)

    def _tell(self, trouble: str) -> None:
        """Log it when the coordinator stops answering, and when it answers again."""
        if trouble and not self.trouble:
            _log.warning("coordinator: %s", trouble)
        elif self.trouble and not trouble:
            _log.info("the coordinator answers again")
        self.trouble = trouble


def is_ours(leader: LeaderRecord | None, session_id: str, epoch: int) -> bool:
    """True if this session leads `epoch`."""
    return leader is not None and (leader.session, leader.epoch) == (session_id, epoch)


async def limited(call: Awaitable[T], seconds: float = CALL_SECONDS_MAX) -> T:
    """Wait for an answer of the coordinator, but not for ever.

    Raises:
        CoordinatorUnavailableError: it did not come; what was asked for may still happen.
    """
    with trio.move_on_after(seconds):
        return await call
    raise CoordinatorUnavailableError(f"no answer within {seconds:g} s")
