"""What a replica is and remembers: its log, its epochs, its file, its name; for one round.

Everything here is local and synchronous. It says what the node's record in the coordinator and the
election want to know, and writes down, durably, what must be true before others rely on it.
"""

from __future__ import annotations

import logging
from random import Random

from ha.errors import StoreLevelError
from ha.fenced.completeness import Completeness
from ha.fenced.config import FencedConfig
from ha.fenced.epoch_file import EpochFile, encode, encode_ids
from ha.fenced.events import OnEvent, Promised, TruncationDecided
from ha.fenced.group_view import GroupView, OwnFacts
from ha.fenced.joining import NeedsTruncation
from ha.fenced.lives import judge
from ha.fenced.replica_file import ReplicaFile
from store import MessageStore
from store.machine.disk import Disk
from store.machine.errors import StoreError
from store.recovery.truncation import TruncationIntent, want_set_aside, write_intent
from store.running_flags import RunningFlag
from tandem.cluster_file.choices import AckLevel
from tandem.wire.group_state import LifeRecord, NodeRecord

_log = logging.getLogger(__name__)


class OwnReplica:
    """The replica of this node, for one session with the coordinator."""

    def __init__(
        self,
        config: FencedConfig,
        store: MessageStore,
        disk: Disk,
        random: Random,
        on_event: OnEvent,
        completeness: Completeness | None = None,
    ) -> None:
        """Read what the replica remembers of itself; `completeness` is that of the process.

        Raises:
            EpochFileError: the epoch file is damaged.
        """
        self.config = config
        self.store = store
        self._disk = disk
        self._on_event = on_event
        self.session_id = f"{random.getrandbits(64):016x}"
        """New for each round, so that two processes of one node cannot be one."""
        self.file = ReplicaFile(disk, config.directory, random)
        self.epochs = EpochFile(disk, config.directory)
        self._completeness = completeness or Completeness()
        self._cut_at: int | None = None
        self.quarantine = ""
        """Why nothing is changed until an operator has looked; empty if there is no such reason."""
        self.is_judged = False
        """True once it is known whether this directory is an older copy of another one."""
        self.coordinator_is_old: str | None = None
        """How this directory shows that the coordinator was set back; None if it does not."""
        self._older_than = ""
        """Token of the life that this directory was found to be older than."""
        self._seen_before = self.file.seen
        """Of the group's record when this round began."""

    @property
    def trouble(self) -> str | None:
        """Why this node must not become master, in words; None if it may."""
        if self.quarantine:
            return self.quarantine
        trouble = self.store.disk_trouble
        return None if trouble is None else trouble.text

    @property
    def damage(self) -> str:
        """Which bytes of its log are bad, in words; empty if none is known to be."""
        return self.store.commit_log.damage.in_words()

    def begin(self, boot_id: str) -> None:
        """Begin a round on a recovered log: is it still what was acknowledged?

        Raises:
            StoreError: it cannot be written down.
            StoreLevelError: the directory is one for later versions; nothing was changed.
        """
        store, file = self.store, self.file
        if file.level > self.config.level_max:
            raise StoreLevelError(file.path, file.level, self.config.level_max)
        end, before = store.max_physical_offset, file.incarnation
        reason = file.started(boot_id, self.config.ack_level, end, store.damaged_end)
        if reason is not None:
            _log.error(
                "this node is replica %s now (it was %s) and has to be compared with its master"
                " before it counts: %s",
                file.incarnation,
                before or "unknown",
                reason,
            )
        self._completeness.round_begins(file.incarnation, end)
        self.epochs.trim_to_log(end)
        self.epochs.truncate_prefix(store.min_physical_offset)
        _log.info(
            "replica %s: epoch %d, promised %d, log %d to %d, confirmed up to %d",
            file.incarnation,
            self.epochs.last_epoch,
            file.promised,
            store.min_physical_offset,
            end,
            store.confirm_offset,
        )

    @property
    def is_complete(self) -> bool:
        """Whether this process has seen that the log has everything acknowledged."""
        return self._completeness.holds(self.file.incarnation)

    def has_everything(self) -> None:
        """The log is that of a master, from its beginning to its end, or is about to be."""
        self._completeness.seen(self.file.incarnation)

    def round_ends(self) -> None:
        """The store is about to be closed: remember what it has to have when it is opened."""
        end = self.store.max_physical_offset
        self._completeness.round_ends(end if self._cut_at is None else self._cut_at)

    # -- what the coordinator remembers ----------------------------------------------------------

    def saw(self, view: GroupView) -> None:
        """Note what the coordinator has, in the step in which it becomes known."""
        state = view.state
        try:
            if not self.is_judged:
                self.judge(view)
            if state is not None:
                self.file.note_seen(*state.age)
                self.file.note_level(state.level)
        except StoreError as error:
            _log.warning("the coordinator's record could not be noted: %s", error)
        if state is not None and state.age > self._seen_before:
            # The writer of this has seen all that this node had, or is an operator.
            self.coordinator_is_old = None

    def judge(self, view: GroupView) -> None:
        """Find out whether this directory, or the coordinator, is an older copy; see `lives`.

        An older directory is another replica from then on, which has to catch up before it counts.

        Raises:
            StoreError: that cannot be written down; ask again.
        """
        file, state, end = self.file, view.state, self.store.max_physical_offset
        record = view.lives.get(self.config.name)
        verdict = judge(
            record,
            life=file.life,
            tokens=file.tokens,
            incarnation=file.incarnation,
            log_end=end,
            loss_accepted=state.loss_accepted if state else 0,
            own_token=self.session_id,
        )
        token = record.token if record else ""
        if verdict.old_directory is not None and token != self._older_than:
            before = file.incarnation
            file.renew_keeping_log(end)
            # Not before it is on the disk: the next question has to find the same.
            self._older_than = token
            _log.error(
                "this node is replica %s now (it was %s) and has to catch up before it counts: %s",
                file.incarnation,
                before,
                verdict.old_directory,
            )
        if record is not None and record.incarnation == file.incarnation:
            # A master's word about it may not have been on our disk when the process ended.
            self.store.confirm(min(record.confirm, end))
        is_news = state is not None and state.age > self._seen_before
        self.coordinator_is_old = None if is_news else verdict.old_coordinator
        self.is_judged = True

    def next_life(self, view: GroupView) -> LifeRecord | None:
        """Return what the coordinator is to remember of this node, None while it is not believed.

        The directory knows of it when this returns.

        Raises:
            StoreError: the disk did not take it; do not register.
        """
        if self.coordinator_is_old is not None:
            return None
        record, token = view.lives.get(self.config.name), self.session_id
        life = 1 + max(self.file.life, record.life if record else 0)
        if record is not None and record.token == token:
            life = record.life
        self.file.may_register(token)
        return LifeRecord(
            node=self.config.name,
            life=life,
            token=token,
            incarnation=self.file.incarnation,
            epoch=self.epochs.last_epoch,
            confirm=self.store.confirm_offset,
            failed=self.failed_incarnation,
        )

    @property
    def failed_incarnation(self) -> str:
        """Under which what was acknowledged may be lost, because a sync has failed; or empty."""
        has_failed = self.store.flags.is_set(RunningFlag.NOT_WRITEABLE)
        counts = has_failed and self.config.ack_level is AckLevel.WRITTEN
        return self.file.incarnation if counts else ""

    def remembered(self, life: LifeRecord) -> None:
        """The coordinator remembers this."""
        try:
            self.file.registered(life.life, life.token)
        except StoreError as error:
            # The next life knows both tokens, this one and the one before.
            _log.warning("the registration could not be noted: %s", error)

    def describe(self) -> NodeRecord:
        """Return the node's record in the coordinator as it should be now."""
        config, store = self.config, self.store
        return NodeRecord(
            node=config.name,
            session=self.session_id,
            incarnation=self.file.incarnation,
            epoch=self.epochs.last_epoch,
            data_epoch=self._data_epoch(),
            end=store.max_physical_offset,
            confirm=store.confirm_offset,
            promised=self.file.promised,
            seen_epoch=self.file.seen[0],
            seen_version=self.file.seen[1],
            trouble=self.trouble or "",
            damage=self.damage,
            is_complete=self.is_complete,
            coordinator_is_old=self.coordinator_is_old is not None,
            quarantined=bool(self.quarantine) and self.store.disk_trouble is None,
            client_address=config.client_address,
            replication_address=f"{config.address}:{config.replication_port}",
            program=config.program,
            level=self.file.level,
            level_max=config.level_max,
        )

    def facts(self) -> OwnFacts:
        """Return what an election has to know of this node."""
        config = self.config
        return OwnFacts(
            name=config.name,
            session_id=self.session_id,
            incarnation=self.file.incarnation,
            log_epoch=self.epochs.last_epoch,
            log_end=self.store.max_physical_offset,
            promised=self.file.promised,
            seen=self.file.seen,
            coordinator_is_old=self.coordinator_is_old,
            is_complete=self.is_complete,
            trouble=self.trouble,
            damage=self.damage,
            members=(config.name, *(peer.name for peer in config.peers)),
            min_isr=config.min_isr,
        )

    def _data_epoch(self) -> int:
        end = self.store.max_physical_offset
        entry = self.epochs.entry_at(end - 1) if end else None
        return entry.epoch if entry else 0

    def promise(self, epoch: int) -> None:
        """Take nothing of a lower epoch any more. Durable, and an event emitted, when it returns.

        Raises:
            StoreError: the disk did not take it; nothing was promised.
        """
        if epoch > self.file.promised:
            self.file.promise(epoch)
            self._on_event(Promised(epoch=epoch))

    def note_progress(self) -> None:
        """Write down how far the log certainly is. Nothing depends on when."""
        by_disk = self.config.ack_level is AckLevel.FLUSHED
        reached = self.store.flushed_where if by_disk else self.store.max_physical_offset
        try:
            self.file.note_acked(reached)
        except StoreError as error:
            _log.warning("the end of the log could not be noted: %s", error)

    def note_failed_sync(self) -> bool:
        """Remember it if a sync of the store has failed. True if it is on disk that one has.

        The coordinator gets it too, as all that is published: see `next_life`.
        """
        if not self.store.flags.is_set(RunningFlag.NOT_WRITEABLE):
            return False
        try:
            self.file.sync_failed()
        except StoreError as error:
            _log.warning("the failed sync could not be noted: %s", error)
            return False
        return True

    def stand_back(self, until: float) -> None:
        """Leave elections to others until then. It is a courtesy: without a disk there is none."""
        try:
            self.file.stand_back(until)
        except StoreError as error:
            _log.warning("this node may run for master again too soon: %s", error)

    def stopped_clean(self) -> None:
        """The store was closed in order: what was written is on disk, unless its disk failed."""
        if not self.file.incarnation or self.store.flags.is_set(RunningFlag.NOT_WRITEABLE):
            return
        try:
            self.file.stopped_clean()
        except StoreError as error:
            _log.warning("the clean stop could not be noted: %s", error)

    def want_cut(self, order: NeedsTruncation) -> str:
        """Have the next opening of the store cut the log; return why, in words.

        Raises:
            StoreError: it cannot be written down; nothing happens.
        """
        confirm, end = self.store.confirm_offset, self.store.max_physical_offset
        reason = (
            f"{order.master} became master of epoch {order.epoch} without {end - order.cut} bytes"
            " that were not confirmed"
        )
        intent = TruncationIntent(
            cut=order.cut,
            reason=reason,
            files={
                "epochIds": encode_ids(order.entries).decode(),
                "epochFileCheckpoint": encode(order.entries).decode(),
                "replica.json": self.file.text_after_cut(order.cut),
            },
            side_name=f"epoch-{order.epoch}-{self.session_id}",
        )
        write_intent(self._disk, self.config.directory, intent)
        self._cut_at = order.cut
        self._on_event(TruncationDecided(cut=order.cut, end=end, confirm=confirm))
        return f"the log is cut at {order.cut}: {reason}"

    def want_set_aside(self, reason: str) -> str:
        """Have the next round begin with an empty store, as another replica; return where it is.

        Raises:
            StoreError: it cannot be written down; the store stays.
        """
        name = f"replica-{self.file.incarnation}"
        # First the name: an empty log under the old one would count as having everything.
        self.file.renew()
        want_set_aside(self._disk, self.config.directory, name)
        _log.warning("the store is being set aside as %s: %s", name, reason)
        return name
