"""One broker over one open store, with either kind of replication.

    services      store, replication, tables, registration, long polling, delayed delivery
      connections   one task each
        listener      client port

A round of requests ends with `end_round`: tables, replication and dispatch first, then the answers.
Replication says when this broker begins to take messages, and when its time is over; both come
through `ReplicationListener`. Handlers know neither kind of replication nor of tables.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import trio

from node.broker.handler_set import handlers_of
from node.broker.live_figures import live_figures
from node.broker.parts import BrokerParts
from node.broker.ports import Ports
from node.broker.registration import Registration
from node.handlers.pull_runs import PULL_RUN_CODES
from node.handlers.send_runs import SEND_RUN_CODES
from node.remoting.dispatcher import Dispatcher
from node.remoting.server import Server
from node.tables.replicated_quotas import QuotasTable
from node.tables.replicated_users import AclsTable, UsersTable
from node.tables.topic_config_table import system_topics
from node.tables.topic_creation import set_auto_creation
from store.delayed_delivery import DELAYING_TOPICS, DelayedDelivery
from store.machine.service_manager import GETS_ON

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from ha.replication import Replication
    from node.broker.calls import Calls
    from node.figures.figure import Figure
    from node.figures.node_report import NodeReport
    from node.name_server.name_server import NameServer
    from node.remoting.connection import Connection
    from node.remoting.dispatcher import Handler
    from node.tables.tables import Tables
    from store import MessageStore
    from store.machine.machine import Machine
    from store.machine.service_manager import ServiceManager
    from store.results import Arrival
    from tandem.cluster_file.cluster_config import NodeConfig

_log = logging.getLogger(__name__)

SCAN_SECONDS: Final = 1.0
"""Between two looks for silent clients. RocketMQ: 10 s."""

RESTART_GRACE_SECONDS: Final = 1.0
"""For answers owed when a round ends by itself; all of them are known by then."""


STOP_LOOK_SECONDS: Final = 30.0
STOP_LOOKS_MAX: Final = 40
"""So long a stop may sync queues before the limit of the unit counts."""


class Broker:
    """Lives as long as its store is open. It is the `ReplicationListener` of its replication.

    Attributes:
        ended_because: Why replication wants all of this closed and opened again; "" unless it does.
    """

    _users_revision = -1
    """Of the users that the guard knows."""
    _rounds_count = 0
    _services: trio.Nursery | None = None
    _delayed: DelayedDelivery | None = None

    ended_because = ""

    def __init__(
        self,
        config: NodeConfig,
        machine: Machine,
        names: NameServer,
        store: MessageStore,
        tables: Tables,
        replication: Replication,
        report: NodeReport,
    ) -> None:
        """Put the parts together; nothing happens before `serve`.

        While it serves, `report` has the sources of its figures.
        """
        self._report = report
        self._config = config
        self._machine = machine
        self._names = names
        self._store = store
        self._tables = tables
        self._replication = replication
        parts = self._parts = BrokerParts(
            config,
            store,
            tables,
            replication,
            disk=machine.disk,
            random=machine.random,
            wall_clock_ms=machine.wall_clock_ms,
        )
        self._outbox = parts.outbox
        self._registration = Registration(
            config,
            machine.network,
            names.routes,
            names.newcomers,
            tables.topics,
            parts.outbox.flush,
        )
        self._handlers = handlers_of(
            parts,
            when_known=self._registration.when_known,
            route_of=names.routes.route,
            delayed=lambda: self._delayed,
            spawn=self.spawn,
            sender_of=names.guard.sender_of,
            refused=names.guard.quotas.refused,
        )
        self._guard = names.guard
        self._calls = self._grpc_calls() if config.cluster.broker.grpc_enable else None
        self._server = self._new_server()
        self._ports = Ports(
            config, machine.network, self._server, self._registration.master_address_changed
        )
        self._ended = trio.Event()
        of = tables.shown.of
        self._users, self._acls, self._quotas = of(UsersTable), of(AclsTable), of(QuotasTable)
        self._served_always: dict[int, Handler] = {}
        self._dispatcher = Dispatcher(self._served_always)
        store.queues.correct_min_offset(store.min_physical_offset)

    async def serve(
        self,
        stop: trio.Event,
        started: Callable[[], None],
        *,
        own_families: tuple[object, ...] = (),
        own_tasks: tuple[Callable[[], Awaitable[None]], ...] = (),
    ) -> None:
        """Run everything until `stop`, or until replication ends this round.

        Args:
            stop: Set when the node is to stop.
            started: Called once this broker listens.
            own_families: Handlers of what only this kind of group answers, also in quarantine.
            own_tasks: What only this kind of group runs.

        Raises:
            StoreError: a part of the store turned out to be corrupt, or cannot be written.
            NodeError: the tables cannot be read by this version.
            AddressInUseError: a port is taken.
        """
        guard = self._guard
        self._know_users()
        always = (*self._names.families(), *own_families)
        self._served_always = guard.guarded(*always)
        self._dispatcher = Dispatcher(
            guard.guarded(*always, *self._handlers.families),
            self._parts.to_clients.answered,
            self._parts.unsupported,
            guard.runs(self._handlers.runs.take, SEND_RUN_CODES),
            guard.runs(self._handlers.pull_runs.take, PULL_RUN_CODES, are_signed=False),
            guard.runs(self._handlers.runs.take_together, SEND_RUN_CODES, are_signed=False),
        )
        async with trio.open_nursery() as services:
            self._services = services
            await services.start(self._store.run, self)
            await services.start(self._replicate)
            self._start_services(services)
            for task in own_tasks:
                services.start_soon(task)
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as listeners:
                    await self._ports.open(self._dispatcher, listeners, connections)
                    with self._report.serving(self._parts.sources(self._live_figures)):
                        started()
                        await self._until_over(stop)
                    listeners.cancel_scope.cancel()
                connections.cancel_scope.deadline = trio.current_time() + self._take_leave(stop)
            services.cancel_scope.cancel()
        async with trio.open_nursery() as nursery:
            if self._machine.service_manager is not None:
                nursery.start_soon(_stop_gets_on, self._machine.service_manager)
            await self._store.settle()
            nursery.cancel_scope.cancel()

    def save(self) -> None:
        """Write tables and the progress of delayed delivery. Call it before the store is closed."""
        self._parts.pop.close()
        self._tables.save()
        self._parts.filters.save_or_tell()
        if self._delayed is not None:
            self._delayed.close()

    def spawn(self, task: Callable[..., Awaitable[Any]], *arguments: object) -> None:
        """Start a task that ends with this broker."""
        self._running.start_soon(task, *arguments)

    def send(self) -> None:
        """Send what was written to connections outside of a round of requests."""
        self._outbox.flush()

    def end_round(self) -> None:
        """Once per round of requests: tables, replication and dispatch first, then the answers."""
        self._rounds_count += 1
        self._tables.end_round()
        revision = self._users.revision + self._acls.revision + self._quotas.revision
        if revision != self._users_revision:
            self._know_users()
        self._store.announce()
        self._outbox.flush()

    def _know_users(self) -> None:
        """Have the guard know the users that are confirmed. Who is no more, is served no more."""
        self._users_revision = self._users.revision + self._acls.revision + self._quotas.revision
        users = self._users.part.users
        if self._guard.users.replace(users, self._acls.part.acls, self._quotas.part.quotas):
            self._guard.quotas.forget_all_but(users)
            self._parts.holds.run_of_the_changed()
            self._handlers.pop.held.ask_of_the_changed()
            self._server.end_of_the_unknown()

    # -- what the store and replication say ------------------------------------------------------

    def arrived(self, arrivals: list[Arrival]) -> None:
        """Wake waiting readers: after a round of puts, or when messages are confirmed."""
        if self._delayed is not None:
            for _, topic, *_ in arrivals:
                if topic in DELAYING_TOPICS:
                    self._delayed.message_arrived(topic)
        self._tables.arrived(arrivals)
        holds = self._parts.holds
        if holds.held_count:
            holds.messages_arrived(arrivals)
        pop = self._parts.pop
        if pop.receiving.count or pop.noticing.count:
            pop.messages_arrived(arrivals)

    def opened(self, epoch: int) -> None:
        """Take messages from now on: write tables, and deliver what is due.

        Raises:
            StoreError: files of the delayed delivery are damaged, or topics cannot be written.
        """
        self._report.elections_count += 1
        log_end = self._store.max_physical_offset
        settings = self._config.cluster
        broker = settings.broker
        own_topics = system_topics(
            settings.cluster.name,
            self._config.node.group,
            auto_create_queue_nums=(
                broker.default_topic_queue_nums if broker.auto_create_topic_enable else None
            ),
            timer_wheel_enable=settings.store.timer_wheel_enable,
        )
        self._parts.transactions.put_missing_op()
        progress = self._tables.open(own_topics, lambda: self._parts.pop.opened(log_end))
        self._store.queues.correct_min_offset(self._store.min_physical_offset)
        set_auto_creation(self._tables, enabled=broker.auto_create_topic_enable)
        self._delayed = DelayedDelivery(
            self._store,
            self._machine.disk,
            wall_clock_ms=self._machine.wall_clock_ms,
            random=self._machine.random,
            journaled=progress,
        )
        self._delayed.start(self._running, self.end_round)
        is_journaled = progress is not None
        self._parts.transactions.open(
            self._parts.transaction_tables.progress(is_journaled=is_journaled)
        )
        self._running.start_soon(
            self._parts.transactions.run,
            self.end_round,
            lambda: self._replication.refusal() is None,
        )
        self.end_round()
        self.role_changed()

    def role_changed(self) -> None:
        """Register under the id of the role; in quarantine, under none, and serve nobody."""
        replication = self._replication
        self._ports.role_changed(is_master=replication.is_master and not replication.is_quarantined)
        if replication.is_quarantined:
            self._registration.leave()
            self._dispatcher.refuse_all(replication.why_not_served, but=self._served_always)
        else:
            self._registration.role_changed(
                is_master=replication.is_master, epoch=replication.epoch
            )

    def answered(self) -> None:
        """Send the answers."""
        self._outbox.flush()

    def ended(self, reason: str) -> None:
        """Have `serve` return."""
        self.ended_because = reason
        self._ended.set()

    # -- parts -----------------------------------------------------------------------------------

    def _new_server(self) -> Server:
        return Server(
            self._outbox,
            connections_max=self._config.cluster.broker.connections_max,
            after_round=self.end_round,
            on_closed=self._connection_closed,
            other=None if self._calls is None else self._calls.entrance,
        )

    def _grpc_calls(self) -> Calls:
        # An extra; that it is there was looked at when the node started.
        from node.broker.calls import Calls  # noqa: PLC0415

        return Calls(
            self._parts,
            self._machine.network,
            self._names.routes,
            self._guard,
            lambda: self._dispatcher,
            self.spawn,
            self.end_round,
            self._connection_closed,
        )

    @property
    def _running(self) -> trio.Nursery:
        assert self._services is not None, "requests and roles come while this broker serves"
        return self._services

    def _live_figures(self) -> Iterator[Figure]:
        yield from live_figures(
            self._server,
            self._parts,
            parked=self._handlers.parked,
            rounds_count=self._rounds_count,
        )
        if self._calls is not None:
            yield from self._calls.counts.figures()

    def _connection_closed(self, connection: Connection) -> None:
        if self._calls is not None:
            self._calls.entrance.connection_closed(connection)
        self._names.connection_closed(connection)
        self._parts.holds.connection_closed(connection)
        self._handlers.pop.held.connection_closed(connection)
        self._handlers.clients.notify(self._parts.clients.connection_closed(connection))
        self._parts.producers.connection_closed(connection)
        self._parts.to_clients.connection_closed(connection)
        self._outbox.flush()

    # -- tasks -----------------------------------------------------------------------------------

    async def _replicate(self, *, task_status: trio.TaskStatus[None]) -> None:
        await self._replication.run(self, task_status=task_status)

    def _start_services(self, services: trio.Nursery) -> None:
        self._guard.quotas.broker_begins()
        services.start_soon(self._registration.run)
        services.start_soon(self._parts.holds.run)
        services.start_soon(self._parts.pop.run, self.end_round)
        services.start_soon(self._tables.run, self.end_round)
        services.start_soon(self._server.close_idle)
        services.start_soon(self._parts.counting.run)
        services.start_soon(self._parts.filters.run)
        services.start_soon(self._forget_the_silent)
        if self._calls is not None:
            services.start_soon(self._calls.run)

    async def _until_over(self, stop: trio.Event) -> None:
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(wait, stop)
            nursery.start_soon(wait, self._ended)

    def _take_leave(self, stop: trio.Event) -> float:
        """Leave the routes and take no more requests; return how long answers owed may take."""
        grace_seconds = self._config.cluster.broker.stop_grace_ms / 1000
        if stop.is_set():
            _log.info("this node is stopping")
        else:
            grace_seconds = min(grace_seconds, RESTART_GRACE_SECONDS)
            _log.warning("this node begins again as a follower: %s", self.ended_because)
        self._registration.leave()
        self._tables.close(self.ended_because or f"{self._config.node.name} is stopping")
        self._guard.quotas.answer_all()
        self._outbox.flush()
        self._server.stop_reading()
        return grace_seconds

    async def _forget_the_silent(self) -> None:
        while True:
            await trio.sleep(SCAN_SECONDS)
            self._handlers.clients.notify(self._parts.clients.expire(trio.current_time()))
            self._parts.producers.expire(trio.current_time())
            self._parts.locks.forget_expired(trio.current_time())
            self._parts.to_clients.expire(trio.current_time())
            self._outbox.flush()


async def _stop_gets_on(service_manager: ServiceManager) -> None:
    """Have the service manager wait for a stop, though not for ever: a disk may hang."""
    for _ in range(STOP_LOOKS_MAX):
        service_manager.say(GETS_ON)
        await trio.sleep(STOP_LOOK_SECONDS)
