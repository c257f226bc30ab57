"""The clients that send heartbeats, and what they consume in which group.

RocketMQ's `ConsumerManager` and `ProducerManager` as far as pulling needs them: consumers of a
group share its queues among the clients that request 38 lists, and are notified (push 40) when that
list changes. Memory only: after a restart clients come back with their next heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from node.remoting.connection import Connection
from tandem.wire.request_headers import SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Callable

    from tandem.wire.request_headers import ConsumerData, HeartbeatData

CLIENT_EXPIRED_SECONDS: Final = 120.0
"""A client without a heartbeat for this long is gone. Source: ConsumerManager."""

MEMBERSHIPS_MAX: Final = 65_536
"""(group, client) pairs; any client may send heartbeats, so there has to be a bound."""

CLUSTERING: Final = "CLUSTERING"


class _Member(msgspec.Struct):
    """One client in one consumer group."""

    connection: Connection
    last: float


class _Group(msgspec.Struct):
    """One consumer group with at least one client."""

    message_model: str
    members: dict[str, _Member]
    subscriptions: dict[str, SubscriptionData]


class TooManyClientsError(Exception):
    """The table is full."""


class ClientTable:
    """The consumer groups of one broker. Time is passed in, in seconds of a monotonic clock.

    Methods that change a group return the connections to notify: all of the group, if
    its members or topics changed and the group shares its queues (not when broadcasting).
    """

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def heartbeat(
        self, beat: HeartbeatData, connection: Connection, now: float
    ) -> dict[str, list[Connection]]:
        """Take in a client with all its groups; return whom to notify, by group.

        Source: ConsumerManager.registerConsumer.

        Raises:
            TooManyClientsError: Nothing was changed for the groups that did not fit.
        """
        changed: dict[str, list[Connection]] = {}
        for data in beat.consumer_data_set:
            if self._join(data, beat.client_id, connection, now):
                changed[data.group_name] = self._to_tell(data.group_name)
        return changed

    def leave(self, group: str, client_id: str) -> list[Connection]:
        """Forget a client of a group (UNREGISTER_CLIENT)."""
        entry = self._groups.get(group)
        if entry is None or entry.members.pop(client_id, None) is None:
            return []
        return self._after_loss(group)

    def connection_closed(self, connection: Connection) -> dict[str, list[Connection]]:
        """Forget every client on a connection; return whom to notify, by group."""
        return self._drop(lambda member: member.connection is connection)

    def expire(self, now: float) -> dict[str, list[Connection]]:
        """Forget every client without a heartbeat for too long; return whom to notify, by group."""
        return self._drop(lambda member: now - member.last > CLIENT_EXPIRED_SECONDS)

    def client_ids(self, group: str) -> list[str]:
        """The clients of a group; empty if there are none."""
        entry = self._groups.get(group)
        return [] if entry is None else list(entry.members)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What a group wants of a topic, by its last heartbeat; None if nothing."""
        entry = self._groups.get(group)
        return None if entry is None else entry.subscriptions.get(topic)

    def has_group(self, group: str) -> bool:
        """Whether any client of the group is known."""
        return group in self._groups

    def _join(self, data: ConsumerData, client_id: str, connection: Connection, now: float) -> bool:
        """Whether the group's members or topics changed."""
        group = self._groups.get(data.group_name)
        if group is None:
            group = _Group(data.message_model, {}, {})
        if client_id not in group.members and self._member_count() >= MEMBERSHIPS_MAX:
            raise TooManyClientsError
        self._groups[data.group_name] = group
        known = group.members.get(client_id)
        group.members[client_id] = _Member(connection, now)
        group.message_model = data.message_model
        is_new = known is None or known.connection is not connection
        return _take_subscriptions(group, data) or is_new

    def _member_count(self) -> int:
        return sum(len(group.members) for group in self._groups.values())

    def _drop(self, is_gone: Callable[[_Member], bool]) -> dict[str, list[Connection]]:
        changed: dict[str, list[Connection]] = {}
        for name, group in list(self._groups.items()):
            gone = [client_id for client_id, member in group.members.items() if is_gone(member)]
            for client_id in gone:
                del group.members[client_id]
            if gone:
                changed[name] = self._after_loss(name)
        return changed

    def _after_loss(self, name: str) -> list[Connection]:
        if not self._groups[name].members:
            del self._groups[name]
            return []
        return self._to_tell(name)

    def _to_tell(self, name: str) -> list[Connection]:
        group = self._groups[name]
        if group.message_model != CLUSTERING:
            return []
        return [member.connection for member in group.members.values()]


def _take_subscriptions(group: _Group, data: ConsumerData) -> bool:
    """Newer versions replace older ones; topics no longer listed go. Whether topics changed."""
    before = group.subscriptions
    after = {}
    for subscription in data.subscription_data_set:
        known = before.get(subscription.topic)
        if known is not None and known.sub_version >= subscription.sub_version:
            after[subscription.topic] = known
        else:
            after[subscription.topic] = subscription
    group.subscriptions = after
    return before.keys() != after.keys()
