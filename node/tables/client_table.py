"""The clients that send heartbeats, and what they consume in which group.

RocketMQ's `ConsumerManager` and `ProducerManager` as far as pulling needs them: consumers of a
group share its queues among the clients that request 38 lists, and are notified (push 40) when that
list changes. Memory only: after a restart clients come back with their next heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from node.errors import RequestError
from node.remoting.connection import Connection
from node.tables.by_age import ByAge
from node.tables.names import check_name
from tandem.wire.request_headers import SubscriptionData
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tandem.wire.request_headers import ConsumerData, HeartbeatData

CLIENT_EXPIRED_SECONDS: Final = 120.0
"""A client without a heartbeat for this long is gone. Source: ConsumerManager."""

MEMBERSHIPS_MAX: Final = 65_536
"""(group, client) pairs; any client may send heartbeats, so there has to be a bound."""

MEMBERSHIPS_PER_CONNECTION_MAX: Final = 8_192
"""The same of one connection, which is one process, or a proxy for some hundreds."""

GROUPS_PER_HEARTBEAT_MAX: Final = 1_024
SUBSCRIPTIONS_PER_HEARTBEAT_MAX: Final = 4_096
"""Of one heartbeat. A client with more has several."""

SUBSCRIPTION_BYTES_MAX: Final = 64 * 1024 * 1024
"""What all groups want of all topics, in memory: some 300,000 ordinary subscriptions."""

_SUBSCRIPTION_BYTES: Final = 200
"""Of one, besides its two texts."""

_NO_TAGS: Final[list[str]] = []
_NO_CODES: Final[list[int]] = []

CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"


class Consumer(msgspec.Struct, frozen=True, gc=False):
    """One client in one consumer group, by its last heartbeat.

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


class Consumption(msgspec.Struct, frozen=True, gc=False):
    """How a group consumes, by its last heartbeat, in RocketMQ's words."""

    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: dict[str, SubscriptionData]


class _Group(msgspec.Struct, gc=False):
    """One consumer group with at least one client."""

    message_model: str
    members: dict[str, Consumer]
    subscriptions: dict[str, SubscriptionData]
    subscription_bytes: int = 0
    consume_type: str = ""
    consume_from_where: str = ""


class TooManyClientsError(Exception):
    """The table is full; the text says of what.

    `count` is how many there would be, `most` how many are allowed.
    """

    def __init__(self, what: str, count: int, most: int) -> None:
        super().__init__(f"{count} {what}, the most allowed are {most}")
        self.count = count
        self.most = most


def _nobody_cares(_: str) -> None:
    """Do nothing."""


class ClientTable:
    """The consumer groups of one broker. Time is passed in, in seconds of a monotonic clock.

    Methods that change a group return the connections to notify: all of the group, if
    its members or topics changed and the group shares its queues (not when broadcasting).
    """

    def __init__(self, *, on_group_gone: Callable[[str], None] = _nobody_cares) -> None:
        """`on_group_gone` is called with the name of a group whose last client has left."""
        self._groups: dict[str, _Group] = {}
        self._memberships: dict[Connection, dict[tuple[str, str], None]] = {}
        """(group, client) of each connection that has any."""
        self._by_age: ByAge[tuple[str, str]] = ByAge()
        self._count = 0
        self._subscription_bytes = 0
        self._on_group_gone = on_group_gone

    def heartbeat(
        self,
        beat: HeartbeatData,
        connection: Connection,
        now: float,
        language: str = "OTHER",
        version: int = 0,
    ) -> dict[str, list[Connection]]:
        """Take in a client with all its groups; return whom to notify, by group.

        Source: ConsumerManager.registerConsumer.

        Raises:
            RequestError: A name is too long, or there are too many in one request.
            TooManyClientsError: There is no room for all of it. Nothing was changed, as above.
        """
        self.check(beat, connection)
        changed: dict[str, list[Connection]] = {}
        consumer = Consumer(beat.client_id, connection, language, version, now)
        for data in beat.consumer_data_set:
            if self.join(data, consumer):
                changed[data.group_name] = self.to_tell(data.group_name)
        return changed

    def leave(self, group: str, client_id: str) -> list[Connection]:
        """Forget a client of a group (UNREGISTER_CLIENT)."""
        return self.to_tell(group) if self._remove(group, client_id) else []

    def connection_closed(self, connection: Connection) -> dict[str, list[Connection]]:
        """Forget every client on a connection; return whom to notify, by group."""
        return self._drop(list(self._memberships.get(connection, ())))

    def expire(self, now: float) -> dict[str, list[Connection]]:
        """Forget every client without a heartbeat for too long; return whom to notify, by group."""
        return self._drop(self._by_age.silent_since(now - CLIENT_EXPIRED_SECONDS))

    def client_ids(self, group: str) -> list[str]:
        """The clients of a group; empty if there are none."""
        entry = self._groups.get(group)
        return [] if entry is None else list(entry.members)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What a group wants of a topic, by its last heartbeat; None if nothing."""
        entry = self._groups.get(group)
        return None if entry is None else entry.subscriptions.get(topic)

    def is_broadcasting(self, group: str) -> bool:
        """Whether every client of a group reads all queues, by the last heartbeat."""
        entry = self._groups.get(group)
        return entry is not None and entry.message_model == BROADCASTING

    def consumers(self, group: str) -> list[Consumer]:
        """The clients of a group; empty if there are none."""
        return list(self._members(group).values())

    def consumption(self, group: str) -> Consumption | None:
        """How a group consumes; None if none of its clients is known."""
        entry = self._groups.get(group)
        if entry is None:
            return None
        return Consumption(
            entry.consume_type, entry.message_model, entry.consume_from_where, entry.subscriptions
        )

    def groups_of(self, topic: str) -> list[str]:
        """The groups whose clients want a topic. Source: ConsumerManager.queryTopicConsumeByWho."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def has_subscriptions(self, group: str) -> bool:
        """Whether clients of a group are known, and want anything."""
        entry = self._groups.get(group)
        return entry is not None and bool(entry.subscriptions)

    def groups(self) -> list[str]:
        """The groups with a client that is known."""
        return list(self._groups)

    def has_group(self, group: str) -> bool:
        """Whether any client of the group is known."""
        return group in self._groups

    def check(self, beat: HeartbeatData, connection: Connection) -> None:
        """Make sure that a heartbeat fits as a whole. The replaced one counts as well.

        Raises:
            RequestError, TooManyClientsError: see `heartbeat`.
        """
        groups = beat.consumer_data_set
        subscriptions = [each for data in groups for each in data.subscription_data_set]
        for what, count, most in (
            ("consumer groups", len(groups), GROUPS_PER_HEARTBEAT_MAX),
            ("subscriptions", len(subscriptions), SUBSCRIPTIONS_PER_HEARTBEAT_MAX),
        ):
            if count > most:
                raise RequestError(
                    ResponseCode.INVALID_PARAMETER,
                    f"a heartbeat with {count} {what}, the most allowed are {most}",
                )
        check_name("client", beat.client_id)
        for data in groups:
            check_name("consumer group", data.group_name)
        for subscription in subscriptions:
            check_name("topic", subscription.topic)
        mine = self._memberships.get(connection, {})
        keys = {(data.group_name, beat.client_id) for data in groups}
        for what, count, most in (
            (
                "clients of all groups",
                self._count + len(keys - self._all_of(keys)),
                MEMBERSHIPS_MAX,
            ),
            (
                "clients of groups on one connection",
                len(mine) + len(keys - mine.keys()),
                MEMBERSHIPS_PER_CONNECTION_MAX,
            ),
            (
                "bytes of subscriptions",
                self._subscription_bytes + sum(map(_bytes_of, subscriptions)),
                SUBSCRIPTION_BYTES_MAX,
            ),
        ):
            if count > most:
                raise TooManyClientsError(what, count, most)

    def _all_of(self, keys: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of them that are known, on any connection."""
        return {key for key in keys if key[1] in self._members(key[0])}

    def _members(self, group: str) -> dict[str, Consumer]:
        entry = self._groups.get(group)
        return {} if entry is None else entry.members

    def join(self, data: ConsumerData, consumer: Consumer) -> bool:
        """Take in a client with one group, after `check`; whether its members or topics changed."""
        client_id, connection = consumer.client_id, consumer.connection
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = _Group(data.message_model, {}, {})
        known = group.members.get(client_id)
        is_new = known is None or known.connection is not connection
        key = data.group_name, client_id
        self._by_age.heard(key, consumer.last)
        if is_new:
            if known is None:
                self._count += 1
            else:
                self._forget_membership(known.connection, key)
            self._memberships.setdefault(connection, {})[key] = None
        group.members[client_id] = consumer
        group.message_model = data.message_model
        group.consume_type = data.consume_type
        group.consume_from_where = data.consume_from_where
        before = group.subscription_bytes
        topics_changed = _take_subscriptions(group, data)
        self._subscription_bytes += group.subscription_bytes - before
        return topics_changed or is_new

    def _remove(self, name: str, client_id: str) -> bool:
        """Whether it was there."""
        group = self._groups.get(name)
        member = None if group is None else group.members.pop(client_id, None)
        if group is None or member is None:
            return False
        self._count -= 1
        self._by_age.forget((name, client_id))
        self._forget_membership(member.connection, (name, client_id))
        if not group.members:
            del self._groups[name]
            self._subscription_bytes -= group.subscription_bytes
            self._on_group_gone(name)
        return True

    def _forget_membership(self, connection: Connection, key: tuple[str, str]) -> None:
        mine = self._memberships[connection]
        del mine[key]
        if not mine:
            del self._memberships[connection]

    def _drop(self, gone: list[tuple[str, str]]) -> dict[str, list[Connection]]:
        for name, client_id in gone:
            self._remove(name, client_id)
        return {name: self.to_tell(name) for name in dict.fromkeys(name for name, _ in gone)}

    def to_tell(self, name: str) -> list[Connection]:
        """Whom to notify of a change of a group."""
        group = self._groups.get(name)
        if group is None or group.message_model != CLUSTERING:
            return []
        # A proxy has many clients on one connection, and passes the notice on.
        return list(dict.fromkeys(member.connection for member in group.members.values()))


def _bytes_of(subscription: SubscriptionData) -> int:
    return _SUBSCRIPTION_BYTES + len(subscription.topic) + len(subscription.sub_string)


def _take_subscriptions(group: _Group, data: ConsumerData) -> bool:
    """Newer versions replace older ones; topics no longer listed go. Whether topics changed."""
    before = group.subscriptions
    after = {}
    for subscription in data.subscription_data_set:
        known = before.get(subscription.topic)
        if known is not None and known.sub_version >= subscription.sub_version:
            after[subscription.topic] = known
        else:
            # The tags are in its text; their list and their codes are not looked at again.
            after[subscription.topic] = msgspec.structs.replace(
                subscription, tags_set=_NO_TAGS, code_set=_NO_CODES
            )
    group.subscriptions = after
    group.subscription_bytes = sum(map(_bytes_of, after.values()))
    return before.keys() != after.keys()
