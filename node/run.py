"""A whole node: opens store, replication and server, serves, and takes them down in reverse.

    with store                              locked, recovered; synced and marked clean at the end
      services   store, replication, tables, registration, long polling
        connections   one task each
          listeners   client port, name-server port

On `stop` the listeners close, requests in flight get their answers (bounded by the grace period),
services end, the store is closed. A crash skips all of that, which is why nothing relies on it.

Everything that touches the world is an argument, so that whole clusters run in one simulation:
no signal, thread, clock or socket is reached from here directly.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import trio

from ha.classic.ha_service import HAService
from ha.fenced.events import OnEvent, ignore
from node.broker.fenced_node import run_fenced_node
from node.broker.registration import Registration
from node.broker.slave_synchronize import SlaveSynchronize
from node.config.node_config import BrokerRole
from node.config.part_configs import ha_config, store_config
from node.config.store_settings import FlushDiskType
from node.errors import ConfigError, RequestError
from node.handlers.admin import Admin
from node.handlers.client_heartbeat import ClientHeartbeat
from node.handlers.consumer_offset import ConsumerOffset
from node.handlers.pull_message import PullMessage
from node.handlers.pull_request_hold_service import PullRequestHoldService
from node.handlers.queue_offset import QueueOffset
from node.handlers.send_message import SendMessage, SlaveRefusal, Wait, WaitPolicy
from node.handlers.send_properties import PropertyStamp, UniqueKeys
from node.name_server.route_table import RouteTable
from node.name_server.topic_route import TopicRoute
from node.remoting.connection import Outbox
from node.remoting.dispatcher import Dispatcher
from node.remoting.server import Server
from node.tables.client_table import ClientTable
from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.topic_config_table import TopicConfigTable, system_topics
from store import MessageStore, StoreError
from store.delayed_delivery import DELAYING_TOPICS, DelayedDelivery
from store.machine.errors import TableFileError
from store.machine.machine import Machine
from store.machine.table_file import TableFile
from tandem.wire.message import Host
from tandem.wire.request_code import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from node.config.node_config import NodeConfig
    from node.remoting.connection import Connection
    from node.remoting.dispatcher import Handler
    from store.machine.disk import Disk
    from store.machine.network import Network
    from tandem.coordinator.interface import Coordinator

_log = logging.getLogger(__name__)

FLUSH_CONSUMER_OFFSET_SECONDS: Final = 5.0
"""Source: BrokerConfig.flushConsumerOffsetInterval."""

SCAN_SECONDS: Final = 1.0
"""Between two looks for silent brokers and clients. RocketMQ: 5 and 10 s."""


async def run_node(
    config: NodeConfig,
    *,
    disk: Disk,
    network: Network,
    wall_clock_ms: Callable[[], int],
    random: Random,
    stop: trio.Event,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    coordinator: Coordinator | None = None,
    boottime: Callable[[], float] | None = None,
    boot_id: str = "",
    on_event: OnEvent = ignore,
) -> None:
    """Run one node until `stop` is set. Started once it is recovered and listening.

    The last four are for nodes of fenced groups: who decides which one is master, a clock that also
    runs while the machine sleeps (in seconds), what changes with each start of the operating
    system, and whoever watches.

    Raises:
        ConfigError: The node is of a fenced group, and there is no coordinator.
        StoreError: The store cannot be opened, or turned out to be corrupt.
        TableFileError: A table file is damaged, or cannot be written.
        AddressInUseError: A port is taken.
    """
    _log.info(
        "%s of group %s, cluster %s (fingerprint %s), store %s",
        _kind(config),
        config.node.group,
        config.cluster.cluster.name,
        config.cluster.fingerprint,
        config.directory,
    )
    if not config.is_fenced:
        await _run_classic(config, disk, network, wall_clock_ms, random, stop, task_status)
    elif coordinator is None or boottime is None:
        raise ConfigError([f"group {config.node.group} is fenced: it needs a coordinator"])
    else:
        machine = Machine(
            disk=disk,
            network=network,
            wall_clock_ms=wall_clock_ms,
            boottime=boottime,
            boot_id=boot_id,
            random=random,
            on_event=on_event,
        )
        await run_fenced_node(config, machine, coordinator, stop, task_status)
    _log.info("stopped")


def _kind(config: NodeConfig) -> str:
    if config.is_fenced:
        return "replica"
    return "master" if config.node.is_master else "slave"


async def _run_classic(
    config: NodeConfig,
    disk: Disk,
    network: Network,
    wall_clock_ms: Callable[[], int],
    random: Random,
    stop: trio.Event,
    task_status: trio.TaskStatus[None],
) -> None:
    # Before the store: which kind of queues a topic has, stands in its attributes.
    topics = TopicConfigTable(
        TableFile(disk, f"{config.directory}/config/topics.json"), wall_clock_ms
    )
    store = MessageStore.open(
        store_config(config),
        disk=disk,
        wall_clock_ms=wall_clock_ms,
        store_host=Host(config.node.address, config.node.port),
        is_slave=not config.node.is_master,
        is_batch_topic=topics.is_batch,
    )
    with store:
        node = _Node(config, store, topics, disk, network, wall_clock_ms, random)
        try:
            await node.serve(stop, task_status)
        finally:
            node.save_offsets()
            node.stop_delivery()


class _Node:
    """The parts of one node, wired together. Lives as long as `run_node`."""

    def __init__(
        self,
        config: NodeConfig,
        store: MessageStore,
        topics: TopicConfigTable,
        disk: Disk,
        network: Network,
        wall_clock_ms: Callable[[], int],
        random: Random,
    ) -> None:
        self._config = config
        self._store = store
        self._network = network
        self._random = random
        self._wall_clock_ms = wall_clock_ms
        self._grace_seconds = config.cluster.broker.stop_grace_ms / 1000
        self._outbox = Outbox()
        self._routes = RouteTable(config.cluster.broker.broker_expired_timeout_ms / 1000)
        self._clients = ClientTable()
        self._topics = topics
        topics.on_change = self._topics_changed
        self._offsets = ConsumerOffsetTable(
            TableFile(disk, f"{config.directory}/config/consumerOffset.json"), wall_clock_ms
        )
        self._registration = Registration(config, network, self._routes, self._topics)
        self._holds = PullRequestHoldService(self._outbox.flush)
        self._ha = HAService(ha_config(config), store, network, wall_clock_ms=wall_clock_ms)
        self._delayed = None if store.is_slave else self._delayed_delivery(disk)
        self._send = None if store.is_slave else self._sender()
        self._heartbeats = ClientHeartbeat(
            self._clients, self._topics, is_slave=lambda: store.is_slave
        )
        self._server = Server(
            self._outbox,
            connections_max=config.cluster.broker.connections_max,
            after_round=self._after_round,
            on_closed=self._connection_closed,
        )
        self._synchronize = SlaveSynchronize(config, network, self._topics, self._offsets)
        store.on_arrival = self._arrived_at_slave if store.is_slave else self._arrived_at_master
        store.flush_service.after_release = self._outbox.flush
        self._ha.group_transfer_service.after_release = self._outbox.flush
        if not store.is_slave:
            try:
                self._create_system_topics()
            except RequestError as error:
                raise TableFileError(error.remark) from error

    async def serve(self, stop: trio.Event, task_status: trio.TaskStatus[None]) -> None:
        """Run everything until `stop`."""
        node = self._config.node
        async with trio.open_nursery() as services:
            await services.start(self._store.run)
            await services.start(self._ha.run)
            self._start_services(services)
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as listeners:
                    for port, handlers in (
                        (node.port, self._handlers()),
                        (node.name_server_port, self._name_server_handlers()),
                    ):
                        listener = await self._network.listen(node.address, port)
                        dispatcher = Dispatcher(handlers)
                        listeners.start_soon(self._server.listen, listener, dispatcher, connections)
                    _log.info("serving at %s", node.broker_address)
                    task_status.started()
                    await stop.wait()
                    listeners.cancel_scope.cancel()
                _log.info("stopping")
                self._server.stop_reading()
                connections.cancel_scope.deadline = trio.current_time() + self._grace_seconds
            services.cancel_scope.cancel()

    def save_offsets(self) -> None:
        """Write the consumer offsets; a full disk costs a few repeated messages, not the node."""
        try:
            self._offsets.save()
        except StoreError as error:
            _log.warning("consumer offsets could not be saved: %s", error)

    def stop_delivery(self) -> None:
        """Write how far delayed messages were delivered."""
        if self._delayed is not None:
            self._delayed.close()

    def _start_services(self, services: trio.Nursery) -> None:
        services.start_soon(self._registration.run)
        services.start_soon(self._holds.run)
        services.start_soon(self._server.close_idle)
        services.start_soon(self._forget_the_silent)
        services.start_soon(self._flush_offsets)
        if self._delayed is None:
            services.start_soon(self._synchronize.run)
        else:
            self._delayed.start(services, self._after_round)

    def _create_system_topics(self) -> None:
        broker = self._config.cluster.broker
        queue_nums = broker.default_topic_queue_nums if broker.auto_create_topic_enable else None
        self._topics.update(
            *system_topics(
                self._config.cluster.cluster.name,
                self._config.node.group,
                auto_create_queue_nums=queue_nums,
                timer_wheel_enable=self._config.cluster.store.timer_wheel_enable,
            )
        )

    def _name_server_handlers(self) -> dict[int, Handler]:
        route = TopicRoute(self._routes)
        return {
            RequestCode.REGISTER_BROKER: route.register,
            RequestCode.UNREGISTER_BROKER: route.unregister,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: route.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: route.cluster_info,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: route.topic_list,
        }

    def _handlers(self) -> dict[int, Handler]:
        """Everything a node answers on its client port. The table to find a request's code in."""
        pull = PullMessage(self._store, self._topics, self._offsets, self._clients, self._holds)
        offset = ConsumerOffset(self._store, self._topics, self._offsets)
        queue = QueueOffset(self._store)
        clients = self._heartbeats
        admin = Admin(
            self._topics,
            self._offsets,
            self._ha.runtime_info,
            is_slave=lambda: self._store.is_slave,
        )
        return {
            **self._name_server_handlers(),
            **self._send_handlers(),
            RequestCode.PULL_MESSAGE: pull.handle,
            RequestCode.LITE_PULL_MESSAGE: pull.handle,
            RequestCode.QUERY_CONSUMER_OFFSET: offset.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: offset.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: queue.search,
            RequestCode.GET_MAX_OFFSET: queue.max_offset,
            RequestCode.GET_MIN_OFFSET: queue.min_offset,
            RequestCode.QUERY_MESSAGE: queue.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: queue.view_message,
            RequestCode.HEART_BEAT: clients.heartbeat,
            RequestCode.UNREGISTER_CLIENT: clients.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: clients.check_config,
            RequestCode.UPDATE_AND_CREATE_TOPIC: admin.create_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: admin.topic_configs,
            RequestCode.GET_ALL_CONSUMER_OFFSET: admin.consumer_offsets,
            RequestCode.GET_BROKER_HA_STATUS: admin.ha_status,
        }

    def _send_handlers(self) -> dict[int, Handler]:
        if self._send is None:
            master = self._config.master
            handler = SlaveRefusal(master.name, master.broker_address).handle
        else:
            handler = self._send.handle
        return {
            RequestCode.SEND_MESSAGE: handler,
            RequestCode.SEND_MESSAGE_V2: handler,
            RequestCode.SEND_BATCH_MESSAGE: handler,
        }

    def _sender(self) -> SendMessage:
        host = Host(self._config.node.address, self._config.node.port)
        keys = UniqueKeys(host, self._wall_clock_ms, self._random)
        stamp = PropertyStamp(self._config.cluster.cluster.name, keys.new)
        return SendMessage(self._store, self._topics, stamp, self._wait_policy(), self._random)

    def _delayed_delivery(self, disk: Disk) -> DelayedDelivery:
        return DelayedDelivery(
            self._store,
            disk,
            wall_clock_ms=self._wall_clock_ms,
            random=self._random,
        )

    def _wait_policy(self) -> WaitPolicy:
        settings = self._config.cluster
        store, transfer = self._store, self._ha.group_transfer_service
        flush = replication = None
        if settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            flush = Wait(
                store.flush_service.submit,
                lambda: store.flushed_where,
                settings.store.sync_flush_timeout_ms / 1000,
            )
        if self._config.broker_role is BrokerRole.SYNC_MASTER:
            replication = Wait(
                transfer.submit,
                lambda: transfer.replicated_offset,
                settings.replication.slave_timeout_ms / 1000,
            )
        return WaitPolicy(flush, replication)

    def _after_round(self) -> None:
        """Once per round of requests: replication, disk and dispatch first, then the answers."""
        if self._send is not None:
            self._send.submit()
        self._store.announce()
        self._outbox.flush()

    def _arrived_at_master(
        self, topic: str, queue_id: int, max_queue_offset: int, tags_code: int | None
    ) -> None:
        if self._delayed is not None and topic in DELAYING_TOPICS:
            self._delayed.message_arrived(topic)
        self._holds.message_arrived(topic, queue_id, max_queue_offset, tags_code)

    def _arrived_at_slave(
        self, topic: str, queue_id: int, max_queue_offset: int, tags_code: int | None
    ) -> None:
        """The log is quicker than the tables: a message of a new topic asks for its settings."""
        if self._topics.get(topic) is None:
            self._synchronize.hurry()
        self._holds.message_arrived(topic, queue_id, max_queue_offset, tags_code)

    def _topics_changed(self) -> None:
        self._registration.topics_changed()

    def _connection_closed(self, connection: Connection) -> None:
        for address in self._routes.connection_closed(connection):
            _log.info("broker at %s left: its connection closed", address)
        self._heartbeats.tell(self._clients.connection_closed(connection))
        self._outbox.flush()

    async def _forget_the_silent(self) -> None:
        while True:
            await trio.sleep(SCAN_SECONDS)
            now = trio.current_time()
            for address in self._routes.expire(now):
                _log.warning("broker at %s left: not heard of for too long", address)
            self._heartbeats.tell(self._clients.expire(now))
            self._outbox.flush()

    async def _flush_offsets(self) -> None:
        while True:
            await trio.sleep(FLUSH_CONSUMER_OFFSET_SECONDS)
            self.save_offsets()
