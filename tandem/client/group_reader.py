"""The work of one member of a consumer group: its queues, its pulls, its offsets.

    subscribe ----> heartbeat, rebalance ----> a QueueReader for each queue of this member
    delivered ----> done / retry / dead letter ----> offsets, every `commit_interval_ms`

See `tandem.client.consumer` for what is promised.
"""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from tandem.client.allocation import allocated_queues
from tandem.client.async_shell import AsyncShell
from tandem.client.broker_request import BrokerRequest
from tandem.client.consumer_settings import ConsumerSettings
from tandem.client.core import ClientCore
from tandem.client.cursor import Cursor
from tandem.client.errors import ClientError, OffsetsFileError
from tandem.client.group_flow import Filter, GroupMember, subscription_data
from tandem.client.inbox import Inbox
from tandem.client.local_offsets import LocalOffsets
from tandem.client.pull_answer import wanted
from tandem.client.pull_flow import Puller, Start
from tandem.client.queue_reader import LOCK_LIVES_SECONDS, QueueReader
from tandem.client.results import MessageQueue
from tandem.wire.errors import ArgumentError
from tandem.wire.message import MessageExt
from tandem.wire.message_properties import PROPERTY_RETRY_TOPIC
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import ConsumerData
from tandem.wire.system_topics import retry_topic

logger = logging.getLogger(__name__)

REBALANCE_SECONDS: Final = 20.0
"""RocketMQ's rebalanceInterval."""

REBALANCE_AGAIN_SECONDS: Final = 1.0
"""When something was missing: a route, the list of members, a lock (RocketMQ's minInterval)."""

LOCK_SECONDS: Final = 20.0
"""RocketMQ's rebalanceLockInterval."""

GREET_SECONDS: Final = 1.0
"""How soon a broker that this client is connected to anew learns who it is."""

IN_HAND_SECONDS: Final = 0.15
"""How long messages in the user's hands are waited for when their queue is lost."""

UNLOCK_DELAY_SECONDS: Final = 20.0
"""How long a lost queue stays locked while the user handles one of its messages: until then nobody
else gets it. Source: RebalancePushImpl.UNLOCK_DELAY_TIME_MILLS, tryRemoveOrderMessageQueue."""

HANDOVER_SECONDS: Final = 0.3
"""How long a member waits before it reads a queue that another one may be giving up: until that one
has stored its offset. Both heard of the change at the same time."""

FIND_QUEUES_SECONDS: Final = 3.0
"""How long one rebalance looks for a topic's queues."""

TOLD_MAX: Final = 100
"""Troubles that were logged and are not logged again; then they are forgotten."""

LAST_COMMIT_SECONDS: Final = 3.0
"""How long storing the offsets may take when a queue is lost, and at the end."""


class GroupReader:
    """One member of a group, between `start` and `stop`."""

    def __init__(
        self,
        core: ClientCore,
        shell: AsyncShell,
        settings: ConsumerSettings,
        wall_clock_ms: Callable[[], int],
        offsets_file: Path | None,
    ) -> None:
        self.settings = settings
        self.puller = Puller(core, settings.group)
        self.member = GroupMember(core, settings.group, settings.max_reconsume_times)
        self.readers: dict[MessageQueue, QueueReader] = {}
        self.shell = shell
        self._core = core
        self._wall_clock_ms = wall_clock_ms
        self._local_offsets = LocalOffsets(offsets_file)
        self._saving = anyio.Lock()
        self._retry_topic = retry_topic(settings.group)
        self._filters: dict[str, Filter] = {}
        self._inboxes: dict[str, Inbox] = {}
        self._unclaimed: list[tuple[QueueReader, MessageExt]] = []
        self._rebalance_wanted = anyio.Event()
        self._has_company = False
        self._locked: set[MessageQueue] = set()
        """What the broker has granted to this ordered member, read already or not yet."""
        self._rebalancing: anyio.CancelScope | None = None
        self._rebalanced = anyio.Event()
        """Set at the end of the last rebalance."""
        self._told: set[str] = set()
        core.broker_requests.on(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._members_changed)

    # -- subscriptions ---------------------------------------------------------------------------

    def subscribe(self, filtered: Filter) -> Inbox:
        """Read a topic from now on; return where its messages are put.

        Raises:
            ArgumentError: it is read already, with another filter.
        """
        known = self._filters.get(filtered.topic)
        if known is not None:
            if known != filtered:
                raise ArgumentError(
                    f"topic {filtered.topic!r} is subscribed already, with another filter; all"
                    " members of a group read the same",
                    *("topic", "tags", "sql"),
                )
            return self._inboxes[filtered.topic]
        self._filters[filtered.topic] = filtered
        inbox = self._inboxes[filtered.topic] = Inbox(self.shell.park)
        self._core.consumes(self.consumer_data)
        unclaimed, self._unclaimed = self._unclaimed, []
        for reader, message in unclaimed:
            self._deliver(reader, message)
        self._rebalance_wanted.set()
        return inbox

    @property
    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of this member."""
        version = self._wall_clock_ms()
        filters = list(self._filters.values())
        if not self.settings.is_broadcasting:
            filters.append(Filter(self._retry_topic))
        return ConsumerData(
            self.settings.group,
            "CONSUME_PASSIVELY",
            self.settings.message_model.upper(),
            self.settings.consume_from_where,
            [subscription_data(each, version) for each in filters],
        )

    def _topics(self) -> list[str]:
        if not self._filters or self.settings.is_broadcasting:
            return list(self._filters)
        return [*self._filters, self._retry_topic]

    def _deliver(self, reader: QueueReader, message: MessageExt) -> None:
        inbox = self._inbox_of(message)
        if inbox is not None:
            inbox.offer(reader, message)
            return
        topic = message.properties.get(PROPERTY_RETRY_TOPIC, message.topic)
        # Not lost: it waits, and the offset of the retry topic with it.
        self._unclaimed.append((reader, message))
        self._tell_once(
            f"unclaimed {topic}",
            "group %s gets messages of topic %s again, which this consumer does not subscribe to;"
            " they wait until it does",
            self.settings.group,
            topic,
        )

    def _inbox_of(self, message: MessageExt) -> Inbox | None:
        topic = message.properties.get(PROPERTY_RETRY_TOPIC, message.topic)
        return self._inboxes.get(topic) or self._inboxes.get(message.topic)

    def put_back(self, reader: QueueReader, message: MessageExt) -> None:
        """Have a message that was not handed out after all be the next of its topic."""
        inbox = self._inbox_of(message)
        assert inbox is not None
        inbox.put_back(reader, message)

    # -- tasks -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the work in the background."""
        tasks = self.shell.tasks
        tasks.start_soon(self._rebalance_for_ever)
        tasks.start_soon(self._greet_for_ever)
        tasks.start_soon(self._commit_for_ever)
        if self.settings.orderly:
            tasks.start_soon(self._lock_for_ever)

    async def stop(self) -> None:
        """Hand out nothing any more, store the offsets, give back locks."""
        self.end()
        if self._rebalancing is not None:
            self._rebalancing.cancel()  # or it would take queues while they are given up
            with anyio.CancelScope(shield=True):
                await self._rebalanced.wait()  # it may be storing the offsets of queues it has lost
        readers = list(self.readers.values())
        await self._give_up(readers)
        if self._locked:
            with anyio.move_on_after(LAST_COMMIT_SECONDS, shield=True):
                await self._unlock(set(self._locked))

    def end(self) -> None:
        """Let every loop over messages end when it asks for the next one."""
        for inbox in self._inboxes.values():
            inbox.end()

    async def _greet_for_ever(self) -> None:
        while True:
            if strangers := self._core.strangers:
                await self.shell.run(self._core.heartbeat(strangers))
            await anyio.sleep(GREET_SECONDS)

    async def _commit_for_ever(self) -> None:
        while True:
            await anyio.sleep(self.settings.commit_interval_ms / 1000)
            await self.commit(list(self.readers.values()))

    async def _lock_for_ever(self) -> None:
        while True:
            await anyio.sleep(LOCK_SECONDS)
            held = list(self.readers.values())
            granted = set(await self.shell.run(self.member.lock([each.queue for each in held])))
            for reader in held:
                if reader.queue in granted:
                    reader.locked()

    # -- rebalance -------------------------------------------------------------------------------

    def _members_changed(self, request: BrokerRequest) -> None:
        self._rebalance_wanted.set()

    async def _rebalance_for_ever(self) -> None:
        try:
            with anyio.CancelScope() as self._rebalancing:
                while True:
                    self._rebalance_wanted = anyio.Event()
                    is_complete = await self._rebalance()
                    seconds = REBALANCE_SECONDS if is_complete else REBALANCE_AGAIN_SECONDS
                    with anyio.move_on_after(seconds):
                        await self._rebalance_wanted.wait()
        finally:
            self._rebalanced.set()

    async def _rebalance(self) -> bool:
        """Give up and take queues; return whether all that was wanted could be had."""
        is_complete = True
        lost: list[QueueReader] = []
        new: list[MessageQueue] = []
        for topic in self._topics():
            mine = await self._queues_of_mine(topic)
            if mine is None:
                is_complete = False
                continue
            lost += [
                reader
                for queue, reader in self.readers.items()
                if queue.topic == topic and (queue not in mine or reader.process_queue.is_dropped)
            ]
            new += [queue for queue in mine if queue not in self.readers]
        await self._wait_for_hands(lost)
        busy = [each for each in lost if self._is_kept_locked(each)]
        is_complete = is_complete and not busy
        await self._give_up([each for each in lost if each not in busy])
        if new and self._has_company:
            await anyio.sleep(HANDOVER_SECONDS)
        if new and self.settings.orderly:
            # Before the answer: if this is cancelled meanwhile, the broker may have granted them.
            self._locked |= set(new)
            granted = set(await self.shell.run(self.member.lock(new)))
            self._locked -= set(new) - granted
            is_complete = is_complete and granted.issuperset(new)
            new = [queue for queue in new if queue in granted]
        begun: list[bool] = []
        async with anyio.create_task_group() as group:
            for queue in new:
                group.start_soon(self._begin, queue, begun)
        return is_complete and all(begun)

    async def _queues_of_mine(self, topic: str) -> set[MessageQueue] | None:
        """Return the queues of a topic that this member is to have, None if that is not known."""
        try:
            queues = await self.shell.run(
                self.puller.fetch_message_queues(topic, FIND_QUEUES_SECONDS)
            )
        except ClientError as error:
            if topic != self._retry_topic:
                self._tell_once(f"{topic} {error}", "%s; looking again every second", error)
            return None
        if self.settings.is_broadcasting:
            return set(queues)
        if strangers := self._core.strangers:
            await self.shell.run(self._core.heartbeat(strangers))
        members = await self.shell.run(self.member.members(topic))
        client_id = self._core.identity.client_id
        if members is None or client_id not in members:
            # A broker that has just become master has heard of few members yet.
            return None
        self._has_company = len(members) > 1
        return set(allocated_queues(queues, members, client_id))

    async def _begin(self, queue: MessageQueue, begun: list[bool]) -> None:
        ordered, locked_at = self.settings.orderly, self._core.clock()
        try:
            offset = await self._start_offset(queue)
        except ClientError as error:
            self._tell_once(f"{queue} {error}", "queue %s is not read yet: %s", queue, error)
            begun.append(False)
            return
        begun.append(True)
        # An ordered queue was locked before its offset was asked for, which may have taken long.
        self._read_from(queue, offset, locked_at + LOCK_LIVES_SECONDS if ordered else math.inf)

    async def _start_offset(self, queue: MessageQueue) -> int:
        settings = self.settings
        if settings.is_broadcasting:
            stored = self._local_offsets.find(queue)
            if stored is not None:
                return stored
            return await self.shell.run(self.puller.first_offset(queue, settings.first_offset))
        start = settings.first_offset
        return await self.shell.run(
            self.puller.group_offset(queue, Start.EARLIEST if self._is_retry(queue) else start)
        )

    def _is_retry(self, queue: MessageQueue) -> bool:
        return queue.topic == self._retry_topic

    def _read_from(self, queue: MessageQueue, offset: int, locked_until: float) -> None:
        of_topic = self._filters.get(queue.topic, Filter(queue.topic))
        cursor = Cursor(queue, offset, None, wanted(of_topic.tags, of_topic.sql))
        cursor.follows_resets = True
        reader = QueueReader(cursor, self.settings, self._deliver, self._core.clock)
        self.readers[queue] = reader
        reader.locked_until = locked_until
        self.shell.tasks.start_soon(self._run, reader)

    async def _run(self, reader: QueueReader) -> None:
        try:
            moved = await reader.run(self.shell, self.puller)
        except ClientError as error:
            self._fail(reader.queue.topic, error)
            return
        if moved and self.readers.get(reader.queue) is reader:
            logger.info("an operator has moved group %s in %s", self.settings.group, reader.queue)
            self.move(reader, reader.next_offset)

    def _fail(self, topic: str, error: ClientError) -> None:
        inboxes = [self._inboxes[topic]] if topic in self._inboxes else self._inboxes.values()
        for inbox in inboxes:
            inbox.end(error)

    def move(self, reader: QueueReader, offset: int) -> None:
        """Read a queue from another offset on. Requests under way do not count any more."""
        reader.drop()
        self._forget_lost()
        self.puller.forget(reader.queue)
        self._read_from(reader.queue, offset, reader.locked_until)

    async def _wait_for_hands(self, lost: list[QueueReader]) -> None:
        """Hand out nothing more of queues that are lost; let the user finish what is out."""
        for reader in lost:
            reader.drop()
        for _ in range(10):
            if not any(each.in_hand_count for each in lost):
                return
            await anyio.sleep(IN_HAND_SECONDS / 10)

    def _is_kept_locked(self, reader: QueueReader) -> bool:
        """Whether the user has a message of an ordered queue: the next member begins with it."""
        is_over = self._core.clock() >= reader.dropped_at + UNLOCK_DELAY_SECONDS
        return self.settings.orderly and reader.in_hand_count > 0 and not is_over

    async def _give_up(self, lost: list[QueueReader]) -> None:
        """Stop reading queues; store how far they were read, and let others have them."""
        for reader in lost:
            reader.drop()
            # By another reader, if a seek or an operator has moved it while hands were waited for.
            now = self.readers.pop(reader.queue, None)
            if now is not None:
                now.drop()
        if not lost:
            return
        self._forget_lost()
        with anyio.move_on_after(LAST_COMMIT_SECONDS, shield=True):
            await self.commit(lost)
            if self.settings.orderly:
                await self._unlock({each.queue for each in lost})
        for reader in lost:
            self.puller.forget(reader.queue)

    def _forget_lost(self) -> None:
        """Let go of what waits of queues that were lost: it comes again with the queue."""
        self._unclaimed = [each for each in self._unclaimed if not each[0].process_queue.is_dropped]
        for inbox in self._inboxes.values():
            inbox.forget_lost()

    async def _unlock(self, queues: set[MessageQueue]) -> None:
        self._locked -= queues
        await self.shell.run(self.member.unlock(sorted(queues)))

    # -- offsets ---------------------------------------------------------------------------------

    async def commit(self, readers: list[QueueReader]) -> None:
        """Store how far queues were handled; what fails is tried again the next time."""
        if self.settings.is_broadcasting:
            for reader in readers:
                self._local_offsets.set(reader.queue, reader.process_queue.commit_offset)
            try:
                async with self._saving:
                    # In a thread: a disk may take its time, and others wait for this loop.
                    await anyio.to_thread.run_sync(self._local_offsets.save)
            except OffsetsFileError as error:
                self._tell_once(str(error), "%s; tried again every few seconds", error)
            return
        async with anyio.create_task_group() as group:
            for reader in readers:
                if reader.process_queue.commit_offset != reader.process_queue.committed:
                    group.start_soon(self._commit_one, reader)

    async def _commit_one(self, reader: QueueReader) -> None:
        process_queue = reader.process_queue
        offset = process_queue.commit_offset
        update = self.puller.update_consume_offset(reader.queue, offset, LAST_COMMIT_SECONDS)
        try:
            await self.shell.run(update)
        except ClientError as error:
            logger.debug("the offset of %s is stored later: %s", reader.queue, error)
        else:
            process_queue.committed = offset

    async def lag(self) -> dict[MessageQueue, int]:
        """Return how many messages of each queue are not handled yet; see `Consumer.lag`."""
        lags = {}
        for queue, reader in sorted(self.readers.items()):
            # The older of both: what comes and is handled meanwhile is not past the end.
            handled = reader.process_queue.commit_offset
            lags[queue] = await self.shell.run(self.puller.max_offset(queue)) - handled
        return lags

    def _tell_once(self, key: str, text: str, *values: object) -> None:
        if len(self._told) >= TOLD_MAX:
            self._told.clear()
        if key not in self._told:
            self._told.add(key)
            logger.warning(text, *values)
