"""The live brokers and the topics they serve: the memory of a name server.

RocketMQ's `RouteInfoManager` without static topics, zones and acting masters. Nothing is written to
disk: brokers register again and again, so a restarted name server knows them within seconds.

A broker leaves when its connection closes, when it unregisters, or when it has been silent for too
long. If a master leaves and a slave stays, the topics stay with the slave's address alone:
consumers go on, producers find no queue to write to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from node.errors import RequestError
from node.tables.names import check_name
from tandem.wire.request_headers import (
    DataVersion,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    RegistrationPart,
    TopicConfig,
    TopicConfigSerializeWrapper,
    UnregisterBrokerRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import (
    MASTER_ID,
    PERM_READ,
    PERM_WRITE,
    BrokerData,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)

BROKERS_MAX: Final = 4_096
"""Live brokers; any client may register, so there has to be a bound."""

ENTRIES_MAX: Final = 262_144
"""Topics of all broker names together: those of eight names that have all they may have."""


class _Live(msgspec.Struct):
    """A registered broker. `connection` is whatever the registration came by; None is ourselves."""

    broker_name: str
    broker_id: int
    last: float
    timeout_seconds: float
    data_version: DataVersion
    connection: object | None
    ha_server_addr: str
    client_addr: str
    """The address that clients get while it is master."""


class _Broker(msgspec.Struct):
    """The brokers of one name."""

    cluster: str
    addresses: dict[int, str]
    taken: dict[str, TopicConfig] = {}
    """Topics whose entries are what these say. A table that comes again with one topic more holds
    the same records for the others if it is this node's own, and these are not looked at again."""
    is_taken_shared: bool = True
    """Whether `taken` is a table of somebody else, which must not be changed."""
    is_partial: bool = False
    """Whether parts of its table are still to come."""
    passed_over: set[str] = set()
    """Addresses whose topics were not taken, as another one was first: changes will not do."""


class RouteTable:
    """The routes of one name server.

    Time is passed in, in seconds of a clock that only goes forward.

    Invariant: an address is live if and only if it is an address of a broker name.
    """

    def __init__(self, expired_timeout_seconds: float) -> None:
        self._expired_timeout_seconds = expired_timeout_seconds
        self._live: dict[str, _Live] = {}
        self._brokers: dict[str, _Broker] = {}
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._entries = 0
        """How many there are in the inner dictionaries."""

    def register(
        self,
        header: RegisterBrokerRequestHeader,
        topics: TopicConfigSerializeWrapper,
        removed: Collection[str] = (),
        *,
        connection: object | None,
        now: float,
    ) -> RegisterBrokerResponseHeader:
        """Take in a broker, or hear again from it; of a change, `removed` are topics no more.

        Source: RouteInfoManager.registerBroker.

        Raises:
            RequestError: A single topic, or a part that is not the first, from a broker that has
                not registered as a whole yet; too many brokers or topics, or too long a name.
                Nothing was changed.
        """
        for name in (header.cluster_name, header.broker_name, header.broker_addr):
            check_name("cluster, broker or address", name)
        check_name("address", header.ha_server_addr)
        check_name("address", header.client_addr or header.broker_addr)
        broker = self._brokers.get(header.broker_name)
        addresses = {} if broker is None else broker.addresses
        if self._is_outdated(header, topics, addresses):
            return RegisterBrokerResponseHeader()
        self._check_part(header, connection)
        is_first = header.broker_id not in addresses
        if is_first and not header.part and len(topics.topic_config_table) == 1:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: {header.broker_name} must register all its topics first",
            )
        if header.broker_addr not in self._live and len(self._live) >= BROKERS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"register broker failed: {BROKERS_MAX} are registered"
            )
        self._check_topics(header.broker_name, topics)
        self._take_address(header)
        self._take_topics(header, topics, removed)
        timeout_ms = header.heartbeat_timeout_millis
        self._live[header.broker_addr] = _Live(
            header.broker_name,
            header.broker_id,
            now,
            timeout_ms / 1000 if timeout_ms else self._expired_timeout_seconds,
            topics.data_version,
            connection,
            header.ha_server_addr,
            header.client_addr or header.broker_addr,
        )
        return self._master_of(header)

    def unregister(self, header: UnregisterBrokerRequestHeader) -> None:
        """Forget a broker that is stopping. Unknown ones are fine."""
        live = self._live.get(header.broker_addr)
        if live is not None and (live.broker_name, live.broker_id) == (
            header.broker_name,
            header.broker_id,
        ):
            self._forget(header.broker_addr)

    def connection_closed(self, connection: object) -> list[str]:
        """Forget the brokers that registered by this connection; return their addresses."""
        gone = [addr for addr, live in self._live.items() if live.connection is connection]
        for address in gone:
            self._forget(address)
        return gone

    def expire(self, now: float) -> list[str]:
        """Forget the brokers that have been silent for too long; return their addresses."""
        gone = [addr for addr, live in self._live.items() if now - live.last > live.timeout_seconds]
        for address in gone:
            self._forget(address)
        return gone

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """All topics of the live brokers of a cluster."""
        names = {name for name, broker in self._brokers.items() if broker.cluster == cluster}
        return [topic for topic, queues in self._queues.items() if not names.isdisjoint(queues)]

    def set_writable(self, broker_name: str, *, is_writable: bool) -> int:
        """Let producers send to a broker, or not; return of how many topics.

        It lasts for each topic until the broker registers it anew: with a change of that topic, or
        with all of them after a new connection.

        Source: RouteInfoManager.operateWritePermOfBroker.
        """
        count = 0
        for queues in self._queues.values():
            data = queues.get(broker_name)
            if data is None:
                continue
            perm = PERM_READ | PERM_WRITE if is_writable else data.perm & ~PERM_WRITE
            queues[broker_name] = msgspec.structs.replace(data, perm=perm)
            self._brokers[broker_name].taken = {}
            count += 1
        return count

    def data_version(self, address: str) -> DataVersion | None:
        """The version of the topics that a broker has registered; None if it is not live."""
        live = self._live.get(address)
        return None if live is None else live.data_version

    def heard_of(self, address: str, connection: object, now: float) -> None:
        """A broker is alive, if it is the one that registered by this connection."""
        live = self._live.get(address)
        if live is not None and live.connection is connection:
            live.last = now

    def is_live(self, address: str) -> bool:
        """Whether a broker at this address is registered."""
        return address in self._live

    def has_master(self, broker_name: str) -> bool:
        """Whether a master of this name is registered."""
        broker = self._brokers.get(broker_name)
        return broker is not None and MASTER_ID in broker.addresses

    def is_partial(self, broker_name: str) -> bool:
        """Whether topics of this name are still to come, in parts of a table that has begun."""
        broker = self._brokers.get(broker_name)
        return broker is not None and broker.is_partial

    def is_known(self, broker_name: str) -> bool:
        """Whether a broker of a name is registered, master or not."""
        return broker_name in self._brokers

    def master_address(self, broker_name: str) -> str | None:
        """Where clients find the master of a name; None: it has none, or is not known."""
        broker = self._brokers.get(broker_name)
        master = None if broker is None else broker.addresses.get(MASTER_ID)
        return None if master is None else self._live[master].client_addr

    def topic_config(self, topic: str) -> TopicConfig | None:
        """What a broker has registered of a topic; None: no live broker has it."""
        names = self._queues.get(topic)
        if not names:
            return None
        found = (self._brokers[name].taken.get(topic) for name in names)
        return next(filter(None, found), None) or TopicConfig(topic)

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic lives, or None if no live broker has it."""
        queues = self._queues.get(topic)
        if not queues:
            return None
        return TopicRouteData(
            broker_datas=[self._broker_data(name) for name in queues],
            queue_datas=list(queues.values()),
        )

    def cluster_info(self) -> ClusterInfo:
        """All live brokers."""
        clusters: dict[str, list[str]] = {}
        for name, broker in self._brokers.items():
            clusters.setdefault(broker.cluster, []).append(name)
        return ClusterInfo({name: self._broker_data(name) for name in self._brokers}, clusters)

    def topics(self) -> list[str]:
        """All topics of live brokers."""
        return list(self._queues)

    def _is_outdated(
        self,
        header: RegisterBrokerRequestHeader,
        topics: TopicConfigSerializeWrapper,
        addresses: dict[int, str],
    ) -> bool:
        """Whether another broker holds this id with a higher state version: then it stays."""
        holder = addresses.get(header.broker_id)
        if holder is None or holder == header.broker_addr:
            return False
        return self._live[holder].data_version.state_version > topics.data_version.state_version

    def _fresh(
        self, broker_name: str, topics: TopicConfigSerializeWrapper
    ) -> dict[str, TopicConfig]:
        """Those of a broker's topics whose entries may have to be others."""
        broker = self._brokers.get(broker_name)
        taken = {} if broker is None else broker.taken
        table = topics.topic_config_table
        if table is taken:
            return {}
        return {name: config for name, config in table.items() if taken.get(name) is not config}

    def _check_part(self, header: RegisterBrokerRequestHeader, connection: object | None) -> None:
        """Refuse a part that goes on with what is not known here, or not any more."""
        if header.part in (None, RegistrationPart.FIRST):
            return
        live = self._live.get(header.broker_addr)
        broker = self._brokers.get(header.broker_name)
        was_passed_over = broker is not None and header.broker_addr in broker.passed_over
        is_prime = broker is not None and header.broker_id == min(broker.addresses, default=-1)
        if live is None or live.connection is not connection or (was_passed_over and is_prime):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: part {header.part} of the table of"
                f" {header.broker_name}, whose other parts are not known: register all topics",
            )

    def _check_topics(self, broker_name: str, topics: TopicConfigSerializeWrapper) -> None:
        table = self._fresh(broker_name, topics)
        for name in table:
            check_name("topic", name)
        if self._entries + len(table) <= ENTRIES_MAX:
            return
        count = sum(broker_name not in self._queues.get(name, ()) for name in table)
        if self._entries + count > ENTRIES_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"register broker failed: with {count} topics more, the routes would have more than"
                f" {ENTRIES_MAX}",
            )

    def _take_address(self, header: RegisterBrokerRequestHeader) -> None:
        live = self._live.get(header.broker_addr)
        if live is not None and (live.broker_name, live.broker_id) != (
            header.broker_name,
            header.broker_id,
        ):
            if live.broker_name == header.broker_name:
                # A slave became master, or the reverse. Its topics stay: its table may come in
                # parts, and till the last one no topic may look as if it were gone.
                del self._live[header.broker_addr]
                del self._brokers[live.broker_name].addresses[live.broker_id]
                self._brokers[live.broker_name].passed_over.discard(header.broker_addr)
            else:
                self._forget(header.broker_addr)
        broker = self._brokers.setdefault(header.broker_name, _Broker(header.cluster_name, {}))
        broker.cluster = header.cluster_name
        replaced = broker.addresses.get(header.broker_id)
        if replaced is not None and replaced != header.broker_addr:
            del self._live[replaced]
            broker.passed_over.discard(replaced)
        broker.addresses[header.broker_id] = header.broker_addr

    def _take_topics(
        self,
        header: RegisterBrokerRequestHeader,
        topics: TopicConfigSerializeWrapper,
        removed: Collection[str],
    ) -> None:
        """Topics come from the master; without one, from the smallest id that is not old.

        Topics that are no longer listed are kept, as in RocketMQ, unless the broker lists all, or
        says from which name to which.
        """
        broker = self._brokers[header.broker_name]
        is_prime = header.broker_id == min(broker.addresses)
        is_old = header.enable_acting_master is None
        if header.broker_id != MASTER_ID and (is_old or not is_prime):
            if not is_old:
                broker.passed_over.add(header.broker_addr)
            return
        broker.passed_over.discard(header.broker_addr)
        live = self._live.get(header.broker_addr)
        is_known = live is not None and live.data_version == topics.data_version
        if is_known and not header.part and not broker.is_partial:
            return
        for name, config in self._fresh(header.broker_name, topics).items():
            brokers = self._queues.setdefault(name, {})
            self._entries += header.broker_name not in brokers
            brokers[header.broker_name] = _queue_data(header.broker_name, config)
        table = topics.topic_config_table
        broker.is_partial &= header.part is not None
        if header.part:
            self._take_part(header, table, removed)
        elif header.whole_table:
            self._drop_topics(header.broker_name, lambda name: name not in table)
            broker.taken, broker.is_taken_shared = table, True
        else:
            broker.taken = {}

    def _take_part(
        self,
        header: RegisterBrokerRequestHeader,
        table: dict[str, TopicConfig],
        removed: Collection[str],
    ) -> None:
        broker = self._brokers[header.broker_name]
        if broker.is_taken_shared:
            broker.taken, broker.is_taken_shared = dict(broker.taken), False
        if header.part is RegistrationPart.CHANGE:
            for name in removed:
                broker.taken.pop(name, None)
                self._drop_topic(header.broker_name, name)
        else:
            low, high = header.part_from or "", header.part_to
            if header.part is RegistrationPart.FIRST or high is None:
                broker.is_partial = high is not None

            def is_gone(name: str) -> bool:
                return low <= name and (high is None or name < high) and name not in table

            for name in [name for name in broker.taken if is_gone(name)]:
                del broker.taken[name]
            self._drop_topics(header.broker_name, is_gone)
        broker.taken.update(table)

    def _drop_topics(self, broker_name: str, is_gone: Callable[[str], bool]) -> None:
        for topic in [topic for topic in self._queues if is_gone(topic)]:
            self._drop_topic(broker_name, topic)

    def _drop_topic(self, broker_name: str, topic: str) -> None:
        queues = self._queues.get(topic)
        if queues is None:
            return
        self._entries -= queues.pop(broker_name, None) is not None
        if not queues:
            del self._queues[topic]

    def _master_of(self, header: RegisterBrokerRequestHeader) -> RegisterBrokerResponseHeader:
        master = self._brokers[header.broker_name].addresses.get(MASTER_ID)
        if header.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResponseHeader()
        return RegisterBrokerResponseHeader(self._live[master].ha_server_addr, master)

    def _forget(self, address: str) -> None:
        live = self._live.pop(address)
        broker = self._brokers[live.broker_name]
        del broker.addresses[live.broker_id]
        broker.passed_over.discard(address)
        if broker.addresses:
            return
        del self._brokers[live.broker_name]
        self._drop_topics(live.broker_name, lambda _: True)

    def _broker_data(self, name: str) -> BrokerData:
        broker = self._brokers[name]
        master = broker.addresses.get(MASTER_ID)
        addresses, epoch = broker.addresses, 0
        if master is not None:
            epoch = self._live[master].data_version.state_version
            addresses = addresses | {MASTER_ID: self._live[master].client_addr}
        return BrokerData(
            broker_addrs=dict(sorted(addresses.items())),
            broker_name=name,
            cluster=broker.cluster,
            master_epoch=epoch or msgspec.UNSET,
        )


def _queue_data(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        perm=config.perm,
        read_queue_nums=config.read_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
        write_queue_nums=config.write_queue_nums,
    )
