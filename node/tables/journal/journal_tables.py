"""The tables of a broker of a fenced group: what its journal says is confirmed.

`config/topics.json`, `consumerOffset.json` and `delayOffset.json` are copies for other programs,
and what a classic node left. What the journal's own file says was confirmed, and it wins.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from node.errors import RequestError
from node.tables.consumer_offset_table import TOPIC_GROUP_SEPARATOR, ConsumerOffsetTable
from node.tables.journal.group_journal import GroupJournal
from node.tables.journal.journal_file import JournalFile, group_tables, journal_state
from node.tables.journal.journal_records import Deleted, GroupsChanged, GroupTables
from node.tables.names import check_name
from node.tables.saving import Saving
from node.tables.subscription_group_table import SYSTEM_GROUPS, SubscriptionGroupTable
from node.tables.topic_config_table import TopicConfigTable
from store.delayed_delivery import JournaledProgress, delay_offset_table
from store.machine.errors import StoreError
from store.machine.table_file import TableFile
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import JOURNAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.replication import Replication
    from node.tables.journal.journal_records import ConsumerOffsets
    from node.tables.tables import Settled
    from store import MessageStore
    from store.delayed.timer_place import TimerPlace
    from store.machine.disk import Disk
    from tandem.wire.request_headers import TopicConfig
    from tandem.wire.subscription_group import SubscriptionGroupConfig

_log = logging.getLogger(__name__)

SAVE_COPY_SECONDS: Final = 5.0
"""Between two writes of the copies of topics and offsets that other programs read."""


class SavedTables:
    """What is in the files of one node; shows what is confirmed from then on.

    Attributes:
        file: The journal's own.
        position: The queue offset of the first record that is not in `confirmed`.
        confirmed: Topics, offsets and delay progress as the journal left them.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        wall_clock_ms: Callable[[], int],
        *,
        auto_create_groups: bool = True,
    ) -> None:
        """Read the files. A group that nobody set up has the defaults if `auto_create_groups`.

        Raises:
            TableFileError: a copy is damaged, and there is no file of the journal's own that
                says the same.
        """
        self.file = JournalFile(disk, directory)
        state = self.file.load()

        def copy(name: str) -> TableFile:
            return TableFile(disk, f"{directory}/config/{name}", is_needed=state is None)

        self.topics = TopicConfigTable(copy("topics.json"), wall_clock_ms, is_copy=True)
        self.groups = SubscriptionGroupTable(
            copy("subscriptionGroup.json"),
            wall_clock_ms,
            is_copy=True,
            auto_create=auto_create_groups,
        )
        self.offsets = ConsumerOffsetTable(copy("consumerOffset.json"), wall_clock_ms)
        self.delay = delay_offset_table(disk, directory, wall_clock_ms, is_needed=state is None)
        self.progress = JournaledProgress(self.delay)
        self.position = 0 if state is None else state.position
        if state is None:
            topics = dict(self.topics.configs.topic_config_table)
            groups = self.groups.configs
            self.confirmed = GroupTables(
                topics,
                self.offsets.offsets(),
                self.delay_progress(),
                {
                    name: config
                    for name, config in groups.subscription_group_table.items()
                    if name not in SYSTEM_GROUPS
                },
                dict(groups.forbidden_table),
            )
            return
        self.confirmed = group_tables(state)
        self.show_topics(None)
        self.show_groups()
        self.show_offsets(None)

    def fit_to(self, store: MessageStore) -> None:
        """Read the journal anew if the log has lost records of it that were applied.

        Others come in their place. Offsets past the end of the log would pass over messages.
        """
        queue = store.queues.find(JOURNAL_TOPIC, 0)
        end = queue.next_offset if queue is not None else 0
        if self.position <= end:
            return
        _log.warning(
            "the log holds %d records of the journal, %d had been applied: offsets go back to what"
            " it says",
            end,
            self.position,
        )
        self.position = queue.min_offset if queue is not None else 0
        self.confirmed = GroupTables(
            self.confirmed.topics, groups=self.confirmed.groups, forbidden=self.confirmed.forbidden
        )
        self.show_offsets(None)
        try:
            self.file.save(journal_state(self.position, self.confirmed))
        except StoreError as error:
            _log.warning("the state of the journal could not be saved: %s", error)

    def show_topics(self, topics: list[TopicConfig] | None) -> None:
        """Have the node's table say what is confirmed: these topics, or all of them."""
        if topics is None:
            self.topics.replace_topics(self.confirmed.topics)
        else:
            self.topics.update(*topics)

    def show_groups(self) -> None:
        """Have the node's table say what is confirmed about groups."""
        self.groups.replace_groups(self.confirmed.groups, self.confirmed.forbidden)

    def show_offsets(self, offsets: ConsumerOffsets | None) -> None:
        """Have the node's table say what is confirmed: these offsets, or all of them."""
        if offsets is None:
            self.offsets.replace(self.confirmed.offsets)
        else:
            self.offsets.adopt(offsets)

    def delay_progress(self) -> dict[int, int]:
        """How far each delay level has got that has got anywhere."""
        return self.delay.progress()

    def take_up_delay(self) -> None:
        """Have the delayed delivery of a new master go on where the journal says.

        All levels: what the file says beyond that was delivered by a master that was cut off.
        """
        for level in self.delay.progress().keys() | self.confirmed.delay.keys():
            self.delay.update(level, self.confirmed.delay.get(level, 0))
        self.progress.timers = self.confirmed.timers
        self.progress.delay_at = self.confirmed.delay_at
        self.progress.timers_at = self.confirmed.timers_at

    def timer_place(self) -> TimerPlace | None:
        """How far the timers have got, None if nothing was ever said of them."""
        return self.progress.timers


class JournalTables:
    """A `Tables` whose changes are written into the log, and stand once they are confirmed."""

    def __init__(
        self,
        saved: SavedTables,
        store: MessageStore,
        replication: Replication,
        *,
        born_host: bytes,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        saved.fit_to(store)
        self.topics = saved.topics
        self.groups = saved.groups
        self.offsets = saved.offsets
        self._saved = saved
        self._replication = replication
        self._saving = Saving(self.topics, self.groups, self.offsets)
        self.journal = GroupJournal(
            store,
            saved.file,
            saved.confirmed,
            saved.position,
            listener=saved,
            born_host=born_host,
            wall_clock_ms=wall_clock_ms,
        )

    def check_change(self) -> None:
        """Refuse a change where a put would be refused."""
        refusal = self._replication.refusal()
        if refusal is not None:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, refusal.text)

    def check_commit(self) -> None:
        """Refuse a commit where a put would be refused."""
        self.check_change()

    def check_query(self) -> None:
        """Only the master answers: another node may not know yet what was committed last.

        A master that is short of replicas takes no offsets, and still knows those that it took.
        """
        refusal = self._replication.refusal()
        is_known = refusal is None or refusal.is_short
        if not self._replication.is_master or not is_known:
            reason = refusal.text if refusal is not None else "this node is not the master"
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"only the master knows offsets: {reason}"
            )

    def change_topics(self, *configs: TopicConfig) -> None:
        """See `Tables`. The record of a topic is in the log before its first message."""
        self.topics.check_room(*configs)
        changed = self.topics.changed(*self.topics.as_created(*configs))
        if changed:
            self.journal.write_topics(changed, lambda topics: self.topics.update(*topics))

    def change_topics_soon(self, *configs: TopicConfig) -> None:
        """See `Tables`. A record of the journal costs no more than a message."""
        self.change_topics(*configs)

    def delete_topic(self, topic: str) -> None:
        """See `Tables`."""
        self.journal.delete(Deleted(topics=[topic]))
        self.topics.delete(topic)

    def change_groups(self, *configs: SubscriptionGroupConfig) -> None:
        """See `Tables`."""
        self.groups.check(*configs)
        changed = self.groups.changed(*configs)
        if changed:
            self.journal.write_groups(changed, lambda groups: self.groups.update(*groups))

    def change_groups_soon(self, *configs: SubscriptionGroupConfig) -> None:
        """See `Tables`. A record of the journal costs no more than a message."""
        self.change_groups(*configs)

    def forbid(self, group: str, topic: str, bits: int) -> None:
        """See `Tables`."""
        check_name("consumer group", group)
        topics = self.groups.with_forbidden(group, topic, bits)
        self.journal.write(GroupsChanged([], {group: topics}))
        self.groups.set_forbidden(group, topics)

    def delete_group(self, group: str, *, clean_offsets: bool) -> None:
        """See `Tables`."""
        self.journal.delete(
            Deleted(groups=[group], offsets_of_groups=[group] if clean_offsets else [])
        )
        self.groups.delete(group)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """See `Tables`. Nodes that are not the master ignore it."""
        if self.journal.writer is not None:
            check_name("consumer group", group)
            self.journal.writer.commit(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", queue_id, offset)

    def when_settled(self, deadline: float, done: Settled) -> None:
        """See `Tables`. At the end of this round at the earliest."""
        self.journal.when_confirmed(deadline, done)

    def open(self, own_topics: list[TopicConfig]) -> JournaledProgress:
        """See `Tables`. Deliveries go on where the journal says."""
        self.journal.open(own_topics)
        return self._saved.progress

    def arrived(self, topic: str) -> None:
        """See `Tables`."""
        if topic == JOURNAL_TOPIC:
            self.journal.arrived()

    def end_round(self) -> None:
        """See `Tables`."""
        self.journal.end_round()

    async def run(self, end_round: Callable[[], None]) -> None:
        """See `Tables`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.journal.run, end_round)
            while True:
                await trio.sleep(SAVE_COPY_SECONDS)
                await self._saving.save_in_turns()

    def save(self) -> None:
        """See `Tables`. What is missing in the files is read from the log again."""
        try:
            self.journal.save()
        except StoreError as error:
            _log.warning("the tables could not be saved: %s", error)
        self._saving.save()

    def close(self, reason: str) -> None:
        """See `Tables`."""
        self.journal.close(reason)
