"""A node of a fenced group: rounds of one process, and what outlives them.

    process    routes, name-server port
      round    store (recovered, cut if it has to be) -> FencedHAService -> handlers -> client port
        roles    FOLLOWER -> CANDIDATE -> OPENING -> MASTER, in place

A round ends when the node is stopped, or when its replica has to begin again as a follower
(`FencedHAService.restart`): it was master and is not any more, or its log has to be cut. Then
connections are closed once the answers owed are out, the store is closed, and all of it is opened
again in the same process. What clients ask name servers for goes on being answered meanwhile.

Handlers ask the replica at every request what may be done, so a change of role needs no wiring.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from ha.fenced.ha_service import FencedHAService
from ha.fenced.replica_role import ReplicaRole
from ha.learners import Learners
from node.broker.registration import Registration
from node.config.part_configs import fenced_config, learner_config, store_config
from node.config.store_settings import FlushDiskType
from node.handlers.admin import Admin
from node.handlers.client_heartbeat import ClientHeartbeat
from node.handlers.consumer_offset import ConsumerOffset
from node.handlers.fenced_group import FencedGroup, refuse_all
from node.handlers.pull_message import PullMessage
from node.handlers.pull_request_hold_service import PullRequestHoldService
from node.handlers.queue_offset import QueueOffset
from node.handlers.send_message import Admission, SendMessage, Wait, WaitPolicy
from node.handlers.send_properties import PropertyStamp, UniqueKeys
from node.name_server.name_server import NameServer
from node.remoting.connection import Outbox
from node.remoting.dispatcher import Dispatcher
from node.remoting.server import Server
from node.tables.client_table import ClientTable
from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.journal.group_journal import GroupJournal, JournalFile, JournalState
from node.tables.journal.journal_records import GroupTables
from node.tables.topic_config_table import TopicConfigTable, system_topics
from store import MessageStore, StoreError
from store.delayed_delivery import DELAYING_TOPICS, DelayedDelivery, delay_offset_table
from store.machine.errors import StoreFullError
from store.machine.table_file import TableFile
from tandem.wire.delay_level import DelayLevels
from tandem.wire.message import Host
from tandem.wire.request_code import RequestCode
from tandem.wire.system_topics import JOURNAL_TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from node.config.node_config import NodeConfig
    from node.remoting.connection import Connection
    from node.remoting.dispatcher import Handler
    from node.tables.journal.journal_records import ConsumerOffsets
    from store.machine.machine import Machine
    from tandem.coordinator.interface import Coordinator
    from tandem.wire.remoting_command import RemotingCommand
    from tandem.wire.request_headers import TopicConfig

_log = logging.getLogger(__name__)

PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 5.0
"""Between two rounds; it doubles while rounds end soon after they began."""

SOON_SECONDS: Final = 10.0

FLUSH_CONSUMER_OFFSET_SECONDS: Final = 5.0
"""Source: BrokerConfig.flushConsumerOffsetInterval."""

SCAN_SECONDS: Final = 1.0
"""Between two looks for silent clients."""

RESTART_GRACE_SECONDS: Final = 1.0
"""For answers owed when a round ends; all of them are known by then."""


async def run_fenced_node(
    config: NodeConfig,
    machine: Machine,
    coordinator: Coordinator,
    stop: trio.Event,
    task_status: trio.TaskStatus[None],
) -> None:
    """Run rounds until `stop` is set. Started once, when the first one serves.

    Raises:
        StoreError: The store cannot be opened, or turned out to be corrupt. A disk that gets full
            later ends a round and not the node.
        NodeError: The journal cannot be read by this version.
        AddressInUseError: A port is taken.
    """
    names = NameServer(config)
    ready = _Once(task_status)
    async with trio.open_nursery() as nursery:
        await nursery.start(names.run, machine.network)
        pause_seconds = PAUSE_SECONDS_MIN
        while not stop.is_set():
            began = trio.current_time()
            full: BaseExceptionGroup[StoreFullError] | None = None
            try:
                await _run_round(config, machine, coordinator, names, stop, ready)
            except* StoreFullError as group:
                full = group
            if full is not None:
                if not ready.is_told:
                    raise full
                _log.error("%s. Trying again until there is room", _first(full))
            if stop.is_set():
                break
            if trio.current_time() - began > SOON_SECONDS:
                pause_seconds = PAUSE_SECONDS_MIN
            with trio.move_on_after(pause_seconds):
                await stop.wait()
            pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)
        ready()
        nursery.cancel_scope.cancel()


async def _run_round(
    config: NodeConfig,
    machine: Machine,
    coordinator: Coordinator,
    names: NameServer,
    stop: trio.Event,
    ready: _Once,
) -> None:
    tables = _Tables(config, machine)
    store = MessageStore.open(
        store_config(config),
        disk=machine.disk,
        wall_clock_ms=machine.wall_clock_ms,
        store_host=Host(config.node.address, config.node.port),
        is_slave=True,
        is_batch_topic=tables.topics.is_batch,
        confirm_bounds_reads=True,
    )
    with store:
        tables.fit_to(store)
        node = _FencedNode(config, machine, coordinator, names, store, tables)
        try:
            await node.serve(stop, ready)
        finally:
            node.save()
    if not store.disk_trouble:
        node.ha.stopped_clean()


def _first(group: BaseExceptionGroup[StoreFullError]) -> BaseException:
    """One of the errors; they are all of the same disk."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Once:
    """Tells that the node has started, the first time it is called."""

    def __init__(self, task_status: trio.TaskStatus[None]) -> None:
        self._task_status: trio.TaskStatus[None] | None = task_status

    @property
    def is_told(self) -> bool:
        """Whether it was called."""
        return self._task_status is None

    def __call__(self) -> None:
        if self._task_status is not None:
            self._task_status.started()
            self._task_status = None


class _Tables:
    """Topics and offsets as the journal left them, or as a classic node did.

    The files that RocketMQ knows are copies for other programs: what the journal's own file says
    is what was confirmed, and it wins.
    """

    def __init__(self, config: NodeConfig, machine: Machine) -> None:
        directory, disk, clock = str(config.directory), machine.disk, machine.wall_clock_ms
        self.topics = TopicConfigTable(TableFile(disk, f"{directory}/config/topics.json"), clock)
        self.topics.is_copy = True
        self.offsets = ConsumerOffsetTable(
            TableFile(disk, f"{directory}/config/consumerOffset.json"), clock
        )
        self.delay = delay_offset_table(disk, directory, clock)
        self.file = JournalFile(disk, directory)
        state = self.file.load()
        self.position = 0 if state is None else state.position
        if state is None:
            levels = range(1, DelayLevels(config.cluster.store.message_delay_level).level_max + 1)
            delay = {level: at for level in levels if (at := self.delay.query(level))}
            self.confirmed = GroupTables(
                dict(self.topics.configs.topic_config_table), self.offsets.offsets(), delay
            )
            return
        self.confirmed = GroupTables(
            {topic.topic_name: topic for topic in state.topics}, state.offsets, state.delay
        )
        self.show_topics(None)
        self.show_offsets(None)

    def fit_to(self, store: MessageStore) -> None:
        """Read the journal anew if the log has lost records of it that were applied.

        Others come in their place. Offsets that are ahead of the log would pass over messages.
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
        self.confirmed = GroupTables(self.confirmed.topics)
        self.show_offsets(None)
        topics = list(self.confirmed.topics.values())
        try:
            self.file.save(JournalState(self.position, topics, {}, {}))
        except StoreError as error:
            _log.warning("the state of the journal could not be saved: %s", error)

    def show_topics(self, topics: list[TopicConfig] | None) -> None:
        """Have the node's table say what is confirmed."""
        if topics is None:
            self.topics.replace_topics(self.confirmed.topics)
        else:
            self.topics.adopt(topics)

    def show_offsets(self, offsets: ConsumerOffsets | None) -> None:
        """Have the node's table say what is confirmed."""
        if offsets is None:
            self.offsets.replace(self.confirmed.offsets)
        else:
            self.offsets.adopt(offsets)


class _FencedNode:
    """The parts of one round, wired together. Lives as long as its store is open."""

    def __init__(
        self,
        config: NodeConfig,
        machine: Machine,
        coordinator: Coordinator,
        names: NameServer,
        store: MessageStore,
        tables: _Tables,
    ) -> None:
        self._config = config
        self._machine = machine
        self._names = names
        self._store = store
        self._tables = tables
        self._host = Host(config.node.address, config.node.port)
        self._timeout_seconds = config.cluster.replication.slave_timeout_ms / 1000
        self._outbox = Outbox()
        self._clients = ClientTable()
        self._services: trio.Nursery | None = None
        self._delayed: DelayedDelivery | None = None
        self._holds = PullRequestHoldService(self._outbox.flush)
        self.ha = FencedHAService(
            fenced_config(config),
            store,
            machine.network,
            coordinator,
            disk=machine.disk,
            boottime=machine.boottime,
            boot_id=machine.boot_id,
            wall_clock_ms=machine.wall_clock_ms,
            random=machine.random,
            on_event=machine.on_event,
        )
        self._journal = GroupJournal(
            store,
            tables.file,
            tables.confirmed,
            tables.position,
            born_host=self._host.packed,
            wall_clock_ms=machine.wall_clock_ms,
        )
        self._registration = Registration(config, machine.network, names.routes, tables.topics)
        self._learners = Learners(
            learner_config(config), store, machine.network, lambda: self.ha.confirm_offset
        )
        self._heartbeats = ClientHeartbeat(
            self._clients, tables.topics, is_slave=lambda: bool(self.ha.admission())
        )
        self._send = self._sender()
        self._server = Server(
            self._outbox,
            connections_max=config.cluster.broker.connections_max,
            after_round=self._after_round,
            on_closed=self._connection_closed,
        )
        self._group = self._fenced_group()
        self._dispatcher = Dispatcher(self._handlers())
        self._connect_hooks()

    def _connect_hooks(self) -> None:
        tables, journal, ha = self._tables, self._journal, self.ha
        tables.topics.on_change = self._registration.topics_changed
        self._names.on_registered = self._registration.peer_registered
        tables.topics.before_update = journal.topics_changed
        journal.on_topics = tables.show_topics
        journal.on_offsets = tables.show_offsets
        journal.after_answers = self._after_round
        self._store.on_arrival = self._arrived
        self._store.flush_service.after_release = self._outbox.flush
        ha.after_release = self._outbox.flush
        ha.on_open = self._opened
        ha.on_role = self._role_changed
        ha.on_confirm = self._confirmed

    async def serve(self, stop: trio.Event, ready: Callable[[], None]) -> None:
        """Run everything until `stop`, or until the replica has to begin again."""
        node = self._config.node
        grace_seconds = self._config.cluster.broker.stop_grace_ms / 1000
        async with trio.open_nursery() as services:
            self._services = services
            await services.start(self._store.run)
            await services.start(self.ha.run)
            self._start_services(services)
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as listeners:
                    listener = await self._machine.network.listen(node.address, node.port)
                    listeners.start_soon(
                        self._server.listen, listener, self._dispatcher, connections
                    )
                    _log.info("serving at %s", node.broker_address)
                    ready()
                    await self._wait_for_end(stop)
                    listeners.cancel_scope.cancel()
                if not stop.is_set():
                    grace_seconds = min(grace_seconds, RESTART_GRACE_SECONDS)
                    _log.warning("begins again as a follower: %s", self.ha.restart_reason)
                self._registration.leave()
                self._journal.close(self.ha.restart_reason or f"{node.name} is stopping")
                self._outbox.flush()
                self._server.stop_reading()
                connections.cancel_scope.deadline = trio.current_time() + grace_seconds
            services.cancel_scope.cancel()

    async def _wait_for_end(self, stop: trio.Event) -> None:
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait, stop)
            nursery.start_soon(wait, self.ha.restart)

    def save(self) -> None:
        """Write tables and progress; what is missing is read from the log again."""
        try:
            self._journal.save()
            self._tables.offsets.save()
        except StoreError as error:
            _log.warning("the tables could not be saved: %s", error)
        if self._delayed is not None:
            self._delayed.close()

    def _start_services(self, services: trio.Nursery) -> None:
        services.start_soon(self._registration.run)
        services.start_soon(self._holds.run)
        services.start_soon(self._journal.run)
        services.start_soon(self._server.close_idle)
        services.start_soon(self._forget_the_silent)
        services.start_soon(self._flush_offsets)
        services.start_soon(self._learners.run)

    # -- what the replica tells ------------------------------------------------------------------

    def _opened(self, epoch: int) -> None:
        """This node takes messages from now on: it writes the journal, and delivers.

        Raises:
            StoreError: Files of the delayed delivery are damaged.
        """
        assert self._services is not None, "a replica opens when its node runs"
        settings = self._config.cluster
        broker = settings.broker
        queue_nums = broker.default_topic_queue_nums if broker.auto_create_topic_enable else None
        own_topics = system_topics(
            settings.cluster.name, self._config.node.group, auto_create_queue_nums=queue_nums
        )
        self._journal.open(own_topics)
        # All levels: what its file says beyond that was delivered by a master that was cut off.
        for level in range(1, self._store.delay_levels.level_max + 1):
            self._tables.delay.update(level, self._tables.confirmed.delay.get(level, 0))
        self._delayed = DelayedDelivery(
            self._store,
            self._machine.disk,
            wall_clock_ms=self._machine.wall_clock_ms,
            random=self._machine.random,
            journaled=self._tables.delay,
        )
        self._journal.delay_progress = self._delayed.progress
        self._delayed.start(self._services, self._after_round)
        self._after_round()
        self._role_changed()

    def _role_changed(self) -> None:
        ha = self.ha
        if ha.role is ReplicaRole.QUARANTINED:
            self._registration.leave()
            self._dispatcher.handlers = self._handlers_in_quarantine()
            return
        is_master = ha.role is ReplicaRole.MASTER
        self._registration.role_changed(is_master=is_master, epoch=ha.epoch)
        self._learners.role_changed(ha.role)

    def _confirmed(self, offset: int) -> None:
        self._learners.confirmed()

    def _arrived(
        self, topic: str, queue_id: int, max_queue_offset: int, tags_code: int | None
    ) -> None:
        if topic == JOURNAL_TOPIC:
            self._journal.arrived()
        elif self._delayed is not None and topic in DELAYING_TOPICS:
            self._delayed.message_arrived(topic)
        self._holds.message_arrived(topic, queue_id, max_queue_offset, tags_code)

    # -- requests --------------------------------------------------------------------------------

    def _sender(self) -> SendMessage:
        machine, ha, store = self._machine, self.ha, self._store
        settings = self._config.cluster
        keys = UniqueKeys(self._host, machine.wall_clock_ms, machine.random)
        flush = None
        if settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            flush = Wait(
                store.flush_service.submit,
                lambda: store.flushed_where,
                settings.store.sync_flush_timeout_ms / 1000,
            )
        replication = Wait(ha.submit, ha.replicated_where, self._timeout_seconds)
        flushed = Wait(ha.submit_flushed, ha.flushed_everywhere, self._timeout_seconds)
        return SendMessage(
            store,
            self._tables.topics,
            PropertyStamp(settings.cluster.name, keys.new),
            WaitPolicy(flush, replication),
            machine.random,
            Admission(ha.admission, lambda: ha.admission_status, WaitPolicy(None, flushed)),
        )

    def _fenced_group(self) -> FencedGroup:
        tables = self._tables
        return FencedGroup(
            self.ha,
            self._journal,
            ConsumerOffset(self._store, tables.topics, tables.offsets),
            Admin(tables.topics, tables.offsets, self.ha.runtime_info, is_slave=lambda: False),
            spawn=self._spawn,
            send=self._outbox.flush,
            timeout_seconds=self._timeout_seconds,
        )

    def _handlers(self) -> dict[int, Handler]:
        """Everything a node answers on its client port. The table to find a request's code in."""
        tables, group, send = self._tables, self._group, self._send.handle
        pull = PullMessage(
            self._store, tables.topics, tables.offsets, self._clients, self._holds, group.commit
        )
        queue = QueueOffset(self._store)
        clients = self._heartbeats
        return {
            **self._names.handlers(),
            **group.status_handlers(),
            RequestCode.SEND_MESSAGE: send,
            RequestCode.SEND_MESSAGE_V2: send,
            RequestCode.SEND_BATCH_MESSAGE: send,
            RequestCode.PULL_MESSAGE: pull.handle,
            RequestCode.LITE_PULL_MESSAGE: pull.handle,
            RequestCode.QUERY_CONSUMER_OFFSET: group.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: group.update_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: queue.search,
            RequestCode.GET_MAX_OFFSET: queue.max_offset,
            RequestCode.GET_MIN_OFFSET: queue.min_offset,
            RequestCode.QUERY_MESSAGE: queue.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: queue.view_message,
            RequestCode.HEART_BEAT: clients.heartbeat,
            RequestCode.UNREGISTER_CLIENT: clients.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
            RequestCode.UPDATE_AND_CREATE_TOPIC: group.create_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: group.topic_configs,
            RequestCode.GET_ALL_CONSUMER_OFFSET: group.consumer_offsets,
        }

    def _handlers_in_quarantine(self) -> dict[int, Handler]:
        """Whose log contradicts what clients were promised answers nothing but what it is."""
        name = self._config.node.name
        refuse = refuse_all(lambda: f"{name} is in quarantine: {self.ha.status().refusal}")
        refused: dict[int, Handler] = dict.fromkeys(self._handlers(), refuse)
        return {**refused, **self._names.handlers(), **self._group.status_handlers()}

    def _spawn(
        self,
        task: Callable[..., Awaitable[Any]],
        connection: Connection,
        command: RemotingCommand,
    ) -> None:
        assert self._services is not None, "requests come when the node runs"
        self._services.start_soon(task, connection, command)

    def _after_round(self) -> None:
        """Once per round of requests: journal, replication and dispatch first, then the answers."""
        self._journal.end_round()
        self._send.submit()
        self._store.announce()
        self._outbox.flush()

    def _connection_closed(self, connection: Connection) -> None:
        self._names.connection_closed(connection)
        self._heartbeats.tell(self._clients.connection_closed(connection))
        self._outbox.flush()

    # -- tasks -----------------------------------------------------------------------------------

    async def _forget_the_silent(self) -> None:
        while True:
            await trio.sleep(SCAN_SECONDS)
            self._heartbeats.tell(self._clients.expire(trio.current_time()))
            self._outbox.flush()

    async def _flush_offsets(self) -> None:
        """Keep the copy that other programs read."""
        while True:
            await trio.sleep(FLUSH_CONSUMER_OFFSET_SECONDS)
            try:
                self._tables.offsets.save()
            except StoreError as error:
                _log.warning("consumer offsets could not be saved: %s", error)
