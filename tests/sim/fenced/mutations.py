"""Ways to break fenced groups, most of them mistakes that RocketMQ made. See `engine.mutation`.

A mutant counts as caught when a run has any finding: the code as it is has none.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import trio

import ha.fenced.election
import ha.fenced.served_log
import store.recovery.opening
import tandem.wire.group_recovery
from ha.fenced.client import FencedClient
from ha.fenced.comparing_service import ComparingService
from ha.fenced.connection import FencedConnection
from ha.fenced.coordinator_session import CoordinatorSession
from ha.fenced.disputed_joint import DisputedJoint
from ha.fenced.election import Follow, Run
from ha.fenced.epoch_file import EpochEntry, EpochFile
from ha.fenced.giving_way import GivingWay
from ha.fenced.group_view import OwnFacts
from ha.fenced.ha_service import FencedHAService
from ha.fenced.healing import Fetch, Piece
from ha.fenced.healing_service import HealingService
from ha.fenced.in_sync_replicas import InSyncReplicas
from ha.fenced.lease import LeaseDeadline
from ha.fenced.master import FencedMaster
from ha.fenced.own_replica import OwnReplica
from ha.fenced.participation import Participation
from ha.fenced.replica_file import ReplicaFile
from ha.fenced.replica_follower import ReplicaFollower
from ha.fenced.replica_server import ReplicaLink, ReplicaServer
from ha.results import Ack
from node.tables.journal.group_journal import GroupJournal
from store.log.damage import LogDamage
from store.log.healing import LogHealing
from store.machine.errors import RecordDamagedError
from store.messages.message_reads import MessageReads
from store.queue.consume_queue_store import AnyConsumeQueue
from store.queue.record_check import Missing, RecordCheck
from store.recovery.store_recovery import StoreRecovery
from store.recovery.truncation import Truncation
from store.services.flush_service import FlushService
from store.services.scrub_service import ScrubService
from tandem.coordinator.interface import Compare, Delete, Put
from tandem.wire.group_recovery import Group
from tandem.wire.group_state import NodeRecord
from tandem.wire.system_topics import JOURNAL_TOPIC
from tests.sim.engine.faults import BLACKOUT
from tests.sim.engine.mutation import Mutation
from tests.sim.engine.settings import GROUP
from tests.sim.fenced.faults import ROT_VERBS


def _knows_that_it_has_everything(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def facts(self: OwnReplica) -> OwnFacts:
        known: OwnFacts = real(self)
        return msgspec.structs.replace(known, is_complete=True)

    return facts


def _counts_acks_not_members(_: Callable[..., Any]) -> Any:  # noqa: ANN401
    def advance(self: InSyncReplicas) -> bool:
        ends = [self._own_written, *(r.written for r in self.replicas.values())]
        reached = sorted(ends, reverse=True)[min(self.min_isr, len(ends)) - 1]
        if reached <= self.confirm:
            return False
        self.confirm = self.flushed_everywhere = reached
        return True

    return advance


def _reports_what_it_received(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def report(self: FencedClient, written: int, flushed: int) -> object:
        return real(self, max(written, self._records.end), flushed)

    return report


def _keeps_the_idle_epoch(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def append(self: EpochFile, epoch: int, start: int) -> None:
        if self.entries and self.entries[-1].start >= start:
            return
        real(self, epoch, start)

    return append


def _hears_the_end_of_old_connections(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def leave(self: ReplicaServer, link: ReplicaLink) -> None:
        if link.name and self.links.get(link.name) is not link:
            self._listener.replica_lost(link.name, "an old connection ended", 0.0)
        real(self, link)

    return leave


def _promises_in_memory(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real

    def promise(self: ReplicaFile, epoch: int) -> None:
        if self._record is not None and epoch > self.promised:
            self._record = msgspec.structs.replace(self._record, promised=epoch)

    return promise


def _leaves_the_log(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real

    def remove_from_log(self: Truncation) -> None:
        """Leave valid bytes behind the cut, for the next recovery to find."""

    return remove_from_log


def _shrinks_to_one(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def proposal(self: InSyncReplicas, now: float) -> object:
        kept, self.min_isr = self.min_isr, 1
        try:
            return real(self, now)
        finally:
            self.min_isr = kept

    return proposal


def _goes_on_after_a_failed_sync(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real
    return lambda self, reason: None


def _forgets_what_is_outstanding(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def count_members(self: InSyncReplicas) -> None:
        outstanding, self.outstanding = self.outstanding, []
        real(self)
        self.outstanding = outstanding

    return count_members


def _opens_at_once(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def begin(self: FencedMaster, *rest: object, **named: object) -> None:
        real(self, *rest, **named)
        self.caught_up.set()

    return begin


def _compares_no_state(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    async def transact(
        self: CoordinatorSession, compares: list[Compare], operations: list[Put | Delete]
    ) -> object:
        kept = [compare for compare in compares if compare.key != self.keys.state]
        return await real(self, kept, operations)

    return transact


def _compares_no_leader(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    async def transact(
        self: CoordinatorSession, compares: list[Compare], operations: list[Put | Delete]
    ) -> object:
        kept = [compare for compare in compares if compare.key != self.keys.leader]
        return await real(self, kept, operations)

    return transact


def _takes_written_for_flushed(_: object) -> Any:  # noqa: ANN401
    return property(lambda self: (self._store.max_physical_offset,) * 2)


def _elects_anybody(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real
    return lambda state, name, incarnation: None


def _keeps_its_name(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real
    return lambda *_: None


def _stamps_its_own_epoch(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def header(self: FencedConnection, *rest: object) -> object:
        last = self._master.entries[-1]
        self._entry = EpochEntry(self._master.epoch, last.start)
        try:
            return real(self, *rest)
        finally:
            self._entry = EpochEntry(-1, 0)
            self._entry_end = 0

    return header


def _reads_everything(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real
    return lambda self, queue: queue.next_offset


def _holds_for_ever(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real
    return lambda self, now: True


def _cuts_where_its_epoch_ends(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def consistent_point(own: Any, own_end: int, theirs: Any, their_end: int) -> object:  # noqa: ANN401
        point = real(own, own_end, theirs, their_end)
        return point if point is None else own_end

    return consistent_point


def _draws_the_same_name(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real
    return lambda self: "0" * 16


def _promises_and_goes_on_following(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real

    async def until_decided_otherwise(
        self: Participation, decision: Follow, scope: trio.CancelScope
    ) -> None:
        while not isinstance(other := self._decide(), Run | Follow) or other == decision:
            with trio.move_on_after(0.02):
                await self._session.changed.wait()
        if isinstance(other, Run):
            self._replica.promise(other.epoch)
            await trio.sleep(0.3)
        scope.cancel()

    return until_decided_otherwise


def _does_nothing(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real
    return lambda *_: None


def _reads_its_whole_journal(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def end_of(self: MessageReads, queue: AnyConsumeQueue) -> object:
        return queue.next_offset if queue.topic == JOURNAL_TOPIC else real(self, queue)

    return end_of


def _answers_commits_at_once(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    del real

    def when_confirmed(self: GroupJournal, _: float, done: Callable[[str | None], None]) -> None:
        done(self._write_gathered())

    return when_confirmed


def _takes_damage_for_a_torn_end(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def started(self: ReplicaFile, boot_id: str, level: object, log_end: int, *_: str) -> object:
        return real(self, boot_id, level, log_end)

    return started


def _waits_for_no_disk(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def waits(self: FencedHAService, ack: Ack) -> object:
        del ack
        return real(self, Ack.REPLICATED)

    return waits


def _takes_its_own_log_for_flushed(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def own_log(self: InSyncReplicas, written: int, flushed: int) -> object:
        del flushed
        return real(self, written, written)

    return own_log


def _counts_from_the_answer(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    async def keep_alive(self: CoordinatorSession) -> None:
        lease = self.lease
        assert lease is not None
        renewed = lease.renewed

        def renewed_now(ttl_seconds: float, asked_at: float) -> None:
            del asked_at
            renewed(ttl_seconds, self._boottime())

        lease.renewed = renewed_now  # type: ignore[method-assign]
        await real(self)

    return keep_alive


def _needs_nothing_on_disk(_: object) -> Any:  # noqa: ANN401
    return property(lambda self: 0)


def _takes_the_shortest_log(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def rank(group: Group, node: NodeRecord) -> object:
        has_all, epoch, end, name = real(group, node)
        return not has_all, epoch, -end, name

    return rank


def _shows_readers_what_was_half_a_second_ago(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    shown: dict[tuple[MessageReads, str, int], tuple[float, int]] = {}

    def end_of(self: MessageReads, queue: AnyConsumeQueue) -> object:
        now, end = trio.current_time(), real(self, queue)
        if queue.topic == JOURNAL_TOPIC:
            return end
        which = (self, queue.topic, queue.queue_id)
        since, before = shown.get(which, (-1.0, 0))
        if now - since < 0.5:
            return before
        shown[which] = now, end
        return end

    return end_of


def _rots(settings: Any) -> bool:  # noqa: ANN401
    return bool(settings.rots)


def _loses_its_first_file(settings: Any) -> bool:  # noqa: ANN401
    return any(i.verb == "rot" and i.arguments[1] == "lose-first" for i in settings.plan)


def _has(*verbs: str) -> Callable[[Any], bool]:
    """Return whether a plan has all of these."""
    return lambda settings: set(verbs) <= {instruction.verb for instruction in settings.plan}


def _rots_after_all_were_killed(settings: Any) -> bool:  # noqa: ANN401
    """Then there are files of which no fingerprint was taken from memory."""
    last = max((i.at_seconds for i in settings.plan if i.verb in ROT_VERBS), default=-1.0)
    killed = {
        argument
        for i in settings.plan
        if i.verb.startswith("kill") and i.at_seconds < last
        for argument in i.arguments
        if argument.startswith(f"{GROUP}-")
    }
    return bool(len(killed) == settings.node_count)


def _misses_no_first_file(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    return lambda config, disk, _log_start, **named: real(config, disk, -1, **named)


def _looks_at_memory(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    async def look_at(self: ScrubService, look: Any, offset: int, data: bytes) -> None:  # noqa: ANN401
        position = offset - look.file.file_from_offset
        await real(self, look, offset, bytes(look.file.buffer[position : position + len(data)]))

    return look_at


def _sees_no_whole_member(_: Callable[..., Any]) -> Any:  # noqa: ANN401
    return lambda *_, **__: []


def _ranks_as_if_all_were_whole(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    return lambda node: real(msgspec.structs.replace(node, damage=""))


def _stays(_: Callable[..., Any]) -> Any:  # noqa: ANN401
    return lambda _: None


def _takes_any_bytes(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    async def fetch(self: HealingService, piece: Piece, order: Fetch, *rest: object) -> object:
        return await real(self, piece, Fetch(None, order.nodes), *rest)

    return fetch


def _asks_not_whether_they_fit(_: Callable[..., Any]) -> Any:  # noqa: ANN401
    return lambda self, start, data: list(self._parts(start, memoryview(data)))


def _passes_over(real: Callable[..., Any]) -> Any:  # noqa: ANN401
    def looks(self: RecordCheck, *which: Any) -> Any:  # noqa: ANN401
        look = real(self, *which)

        def found(*record: int) -> object:
            seen = look(*record)
            return Missing.PASSED_OVER if isinstance(seen, RecordDamagedError) else seen

        return found

    return looks


def _remembers_nothing(_: Callable[..., Any]) -> Any:  # noqa: ANN401
    return lambda _: ()


def _asks_nobody(_: Callable[..., Any]) -> Any:  # noqa: ANN401
    async def ask(*_: object) -> bool:
        return False

    return ask


MUTATIONS: Final[dict[str, Mutation]] = {
    "min_isr acknowledgements are enough, from any nodes": Mutation(
        InSyncReplicas, "_advance", _counts_acks_not_members
    ),
    "a slave acknowledges before it has appended": Mutation(
        FencedClient, "report", _reports_what_it_received
    ),
    "the entry of an idle epoch stays, the next is refused": Mutation(
        EpochFile, "append", _keeps_the_idle_epoch
    ),
    "the end of an old connection counts for the new one": Mutation(
        ReplicaServer, "_leave", _hears_the_end_of_old_connections
    ),
    "a member that has just started believes that it has everything": Mutation(
        OwnReplica,
        "facts",
        _knows_that_it_has_everything,
        shows=lambda settings: any(i.verb == "put-back" for i in settings.plan),
    ),
    "a promise is kept in memory only": Mutation(ReplicaFile, "promise", _promises_in_memory),
    "a cut leaves the bytes where they are": Mutation(
        Truncation, "_remove_from_log", _leaves_the_log
    ),
    "the in-sync set is proposed below min_isr": Mutation(
        InSyncReplicas, "proposal", _shrinks_to_one
    ),
    "a failed sync is tried again as if nothing had happened": Mutation(
        FlushService, "_fail", _goes_on_after_a_failed_sync
    ),
    "only the recorded set counts, not what is outstanding": Mutation(
        InSyncReplicas, "_count_members", _forgets_what_is_outstanding
    ),
    "a master opens before all members have its log": Mutation(
        FencedMaster, "__init__", _opens_at_once
    ),
    "transactions do not compare the revision of the state": Mutation(
        CoordinatorSession, "transact", _compares_no_state
    ),
    "transactions do not compare the leader": Mutation(
        CoordinatorSession, "transact", _compares_no_leader
    ),
    "a slave reports as flushed what is written": Mutation(
        ReplicaFollower, "_ends", _takes_written_for_flushed
    ),
    "any node that lives can be elected": Mutation(
        ha.fenced.election, "why_not_electable", _elects_anybody
    ),
    "a replica that has lost its tail keeps its incarnation": Mutation(
        ReplicaFile, "_why_renew", _keeps_its_name
    ),
    "frames carry the master's epoch, also those of bytes that another master wrote": Mutation(
        FencedConnection, "_header", _stamps_its_own_epoch
    ),
    "readers see what is not confirmed": Mutation(MessageReads, "_end_of", _reads_everything),
    "the lease is never looked at": Mutation(LeaseDeadline, "holds", _holds_for_ever),
    "a log is cut where it ends": Mutation(
        ha.fenced.client, "consistent_point", _cuts_where_its_epoch_ends
    ),
    "every new life has the same incarnation": Mutation(ReplicaFile, "_draw", _draws_the_same_name),
    "a candidate promises, and follows the old master on": Mutation(
        Participation,
        "_until_decided_otherwise",
        _promises_and_goes_on_following,
        also=Mutation(ReplicaFollower, "_expect_current", _does_nothing),
    ),
    "the journal is applied above the confirm offset": Mutation(
        MessageReads, "_end_of", _reads_its_whole_journal
    ),
    "commits are answered before they are confirmed": Mutation(
        GroupJournal, "when_confirmed", _answers_commits_at_once
    ),
    "a damaged record at the end is taken for a torn one": Mutation(
        ReplicaFile, "started", _takes_damage_for_a_torn_end
    ),
    "what a failed sync gave up is not written again": Mutation(
        StoreRecovery, "_write_again", _does_nothing
    ),
    "a put that waits for all disks is answered when it is written": Mutation(
        FencedHAService, "waits", _waits_for_no_disk
    ),
    "the master does not wait for its own disk": Mutation(
        InSyncReplicas, "own_log", _takes_its_own_log_for_flushed
    ),
    "a lease is counted from the answer of the coordinator": Mutation(
        CoordinatorSession, "_keep_alive", _counts_from_the_answer
    ),
    "a new member need not have on its disk what was answered as flushed": Mutation(
        InSyncReplicas, "_flush_promised", _needs_nothing_on_disk
    ),
    "readers are shown what was confirmed half a second ago": Mutation(
        MessageReads, "_end_of", _shows_readers_what_was_half_a_second_ago
    ),
    "recover-group takes the shortest log": Mutation(
        tandem.wire.group_recovery,
        "_rank",
        _takes_the_shortest_log,
        shows=lambda settings: any(i.verb == BLACKOUT for i in settings.plan),
    ),
    "a first file that is missing is taken for retention": Mutation(
        store.recovery.opening, "missing_files", _misses_no_first_file, shows=_loses_its_first_file
    ),
    "the scrub looks at memory only": Mutation(
        ScrubService, "_look_at", _looks_at_memory, shows=_rots
    ),
    "replicas do not compare what they have": Mutation(
        ComparingService, "_compare_file", _asks_nobody, shows=_rots_after_all_were_killed
    ),
    "a damaged node is elected where a whole one could be": Mutation(
        ha.fenced.election,
        "whole_members",
        _sees_no_whole_member,
        shows=_has("stall-peers", "rot-through", "kill"),
        also=Mutation(ha.fenced.election, "_rank", _ranks_as_if_all_were_whole),
    ),
    "a damaged master stays, though a whole member follows": Mutation(
        GivingWay, "why_resign", _stays, shows=_has("stall-peers", "rot-through")
    ),
    "what others give is put in place, whether it fits or not": Mutation(
        HealingService,
        "_fetch",
        _takes_any_bytes,
        shows=_has("rot-twin"),
        also=Mutation(LogHealing, "_fitting", _asks_not_whether_they_fit),
    ),
    "a peer is given bytes that nobody has looked at": Mutation(
        ha.fenced.served_log, "look_at", _does_nothing, shows=_has("rot-twin")
    ),
    "a read passes over a damaged record": Mutation(
        RecordCheck, "looks", _passes_over, shows=_has("stall-peers", "rot-through")
    ),
    "damage is forgotten at a restart": Mutation(
        LogDamage, "_read", _remembers_nothing, shows=_has("stall-peers", "rot-through", "stop")
    ),
    "other bytes at a joint are an alarm at once": Mutation(
        DisputedJoint, "is_open", _asks_nobody, shows=_rots_after_all_were_killed
    ),
}
