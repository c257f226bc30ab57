"""The producers that send heartbeats: whom a broker asks about a transaction, and where replies go.

    by group    one live member of a producer group, in turn: CHECK_TRANSACTION_STATE
    by client   the connection of a client id: PUSH_REPLY_MESSAGE_TO_CLIENT

Memory only: after a restart clients come back with their next heartbeat, 30 s later at the latest.

Source: RocketMQ 5.3.3, ProducerManager.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from node.errors import RequestError
from node.remoting.connection import Connection
from node.tables.by_age import ByAge
from node.tables.client_table import (
    GROUPS_PER_HEARTBEAT_MAX,
    MEMBERSHIPS_MAX,
    MEMBERSHIPS_PER_CONNECTION_MAX,
    TooManyClientsError,
)
from node.tables.names import check_name
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tandem.wire.request_headers import HeartbeatData

PRODUCER_EXPIRED_SECONDS: Final = 120.0
"""A producer without a heartbeat for this long is gone. Source: ProducerManager."""


TRIES: Final = 3
"""Members looked at for one that reads what it gets. Source: ProducerManager."""


def _anybody(_connection: Connection) -> bool:
    return True


class Producer(msgspec.Struct, frozen=True, gc=False):
    """One client in one producer group, by its last heartbeat.

    It goes when its connection ends, so the collector has nothing to do here.

    Attributes:
        version: Number of its RocketMQ version, as in every frame that it sends.
        last: When the heartbeat came, in the seconds that the table was given.
    """

    client_id: str
    connection: Connection
    language: str
    version: int
    last: float


class ProducerTable:
    """The producer groups of one broker. Time is passed in, in seconds of a monotonic clock.

    A client is in a group once, with the connection of its last heartbeat.
    """

    def __init__(self) -> None:
        self._groups: dict[str, OrderedDict[str, Producer]] = {}
        """The member whose turn it is comes first."""
        self._clients: dict[str, dict[str, Connection]] = {}
        """Client id -> its groups; the one with the newest heartbeat is the last."""
        self._memberships: dict[Connection, dict[tuple[str, str], None]] = {}
        """(group, client) of each connection that has any."""
        self._by_age: ByAge[tuple[str, str]] = ByAge()
        self._count = 0

    def check(self, beat: HeartbeatData, connection: Connection) -> None:
        """Make sure that a heartbeat fits as a whole. The replaced one counts as well.

        Raises:
            RequestError: A name is too long, or there are too many groups in one request.
            TooManyClientsError: There is no room for all of it.
        """
        groups = beat.producer_data_set
        if len(groups) > GROUPS_PER_HEARTBEAT_MAX:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"a heartbeat with {len(groups)} producer groups, the most allowed are"
                f" {GROUPS_PER_HEARTBEAT_MAX}",
            )
        check_name("client", beat.client_id)
        for data in groups:
            check_name("producer group", data.group_name)
        names = {data.group_name for data in groups}
        known = self._clients.get(beat.client_id, {})
        here = sum(known.get(name) is connection for name in names)
        mine = len(self._memberships.get(connection, ()))
        for what, count, most in (
            ("producers of all groups", self._count + len(names - known.keys()), MEMBERSHIPS_MAX),
            (
                "producers of groups on one connection",
                mine + len(names) - here,
                MEMBERSHIPS_PER_CONNECTION_MAX,
            ),
        ):
            if count > most:
                raise TooManyClientsError(what, count, most)

    def heartbeat(
        self, beat: HeartbeatData, connection: Connection, language: str, version: int, now: float
    ) -> None:
        """Take in a client with all its producer groups, after `check`.

        Source: ProducerManager.registerProducer.
        """
        producer = Producer(beat.client_id, connection, language, version, now)
        for data in beat.producer_data_set:
            self._take(data.group_name, producer)

    def leave(self, group: str, client_id: str, connection: Connection) -> None:
        """Forget a client of a group (UNREGISTER_CLIENT), unless it came back elsewhere since."""
        if self._clients.get(client_id, {}).get(group) is connection:
            self._remove(group, client_id)

    def connection_closed(self, connection: Connection) -> None:
        """Forget every client on a connection."""
        for group, client_id in list(self._memberships.get(connection, ())):
            self._remove(group, client_id)

    def expire(self, now: float) -> None:
        """Forget every client without a heartbeat for too long."""
        for group, client_id in self._by_age.silent_since(now - PRODUCER_EXPIRED_SECONDS):
            self._remove(group, client_id)

    def groups(self) -> list[str]:
        """The groups that have a member."""
        return list(self._groups)

    def producers(self, group: str) -> list[Producer]:
        """The members of a group; empty if there are none."""
        members = self._groups.get(group)
        return [] if members is None else list(members.values())

    def connection_of(self, client_id: str) -> Connection | None:
        """The connection of a client's last heartbeat as a producer; None if it is not known."""
        of_client = self._clients.get(client_id)
        return None if of_client is None else next(reversed(of_client.values()))

    def next_connection(
        self, group: str, may_be_asked: Callable[[Connection], bool] = _anybody
    ) -> Connection | None:
        """A member of a group to ask something, another one each time; None if there is none.

        One that reads its answers is preferred.

        Source: ProducerManager.getAvailableChannel.
        """
        members = self._groups.get(group)
        if not members:
            return None
        connection = None
        for _ in range(min(len(members), TRIES)):
            client_id, producer = next(iter(members.items()))
            members.move_to_end(client_id)
            if not may_be_asked(producer.connection):
                continue
            connection = producer.connection
            if not connection.is_congested:
                break
        return connection

    def _take(self, group: str, producer: Producer) -> None:
        client_id, connection = producer.client_id, producer.connection
        members = self._groups.setdefault(group, OrderedDict())
        of_client = self._clients.setdefault(client_id, {})
        before = of_client.pop(group, None)
        if before is None:
            self._count += 1
        elif before is not connection:
            self._forget_membership(before, (group, client_id))
        members[client_id] = producer
        self._by_age.heard((group, client_id), producer.last)
        of_client[group] = connection
        self._memberships.setdefault(connection, {})[group, client_id] = None

    def _remove(self, group: str, client_id: str) -> None:
        members = self._groups[group]
        producer = members.pop(client_id)
        self._count -= 1
        self._by_age.forget((group, client_id))
        if not members:
            del self._groups[group]
        of_client = self._clients[client_id]
        del of_client[group]
        if not of_client:
            del self._clients[client_id]
        self._forget_membership(producer.connection, (group, client_id))

    def _forget_membership(self, connection: Connection, key: tuple[str, str]) -> None:
        mine = self._memberships[connection]
        del mine[key]
        if not mine:
            del self._memberships[connection]
