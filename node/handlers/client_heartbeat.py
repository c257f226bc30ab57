"""Heartbeats and group membership: the clients that share the queues of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec
import trio

from ha.replication import Replication
from node.errors import RequestError
from node.handlers.group_topics import group_topic
from node.handlers.subscription import TAG, Subscriptions, is_tag_type
from node.remoting.client_requests import ClientRequests
from node.remoting.connection import Connection
from node.remoting.dispatcher import Pieces, in_pieces, response_to
from node.security.access import Action, Resource
from node.security.request import of_group, of_topic, serves
from node.tables.client_table import ClientTable, Consumer, TooManyClientsError
from node.tables.consumer_filter_table import ConsumerFilterTable, SubscriptionFilter
from node.tables.names import check_name
from node.tables.producer_table import ProducerTable
from node.tables.tables import Tables
from node.tables.topic_config_table import topic_complaint
from tandem.wire.access_control import Right
from tandem.wire.heartbeat import decode_heartbeat
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    ConsumerData,
    ConsumerIdList,
    GroupRequestHeader,
    HeartbeatData,
    HeartbeatResponseHeader,
    SubscriptionData,
    UnregisterClientRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body
from tandem.wire.system_topics import retry_topic

FILTER_CHARS_PER_HEARTBEAT_MAX: Final = 262_144
"""Of all expressions in one."""


LARGE_BYTES: Final = 65_536
"""A heartbeat that is decoded and checked in a piece of its own."""

_decoded = lru_cache(maxsize=1)(decode_heartbeat)
"""Where users are asked, three look at a heartbeat one after the other: for its topics, for its
groups, and the handler. It never changes."""

WORK_PER_PIECE: Final = 1_024
"""Of one heartbeat, between two looks at the time: as many subscriptions, some 4 ms."""

GROUP_WORK: Final = 8
"""A new group with its retry topic takes 30 microseconds, a subscription 4."""

CHARS_PER_WORK: Final = 8
"""Of a filter, which is compiled: half a microsecond each."""


class CheckClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    """Body of CHECK_CLIENT_CONFIG, as far as it is looked at."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None


class ClientHeartbeat:
    """Serves the registry of clients, and notifies consumers when their group has changed."""

    def __init__(
        self,
        clients: ClientTable,
        producers: ProducerTable,
        tables: Tables,
        replication: Replication,
        to_clients: ClientRequests,
        filters: ConsumerFilterTable,
        subscriptions: Subscriptions,
    ) -> None:
        self._clients = clients
        self._producers = producers
        self._tables = tables
        self._replication = replication
        self._to_clients = to_clients
        self._filters = filters
        self._subscriptions = subscriptions

    @serves(
        RequestCode.HEART_BEAT,
        (Resource.CLIENTS, Action.WRITE),
        of_topic(lambda command: topics_of_heartbeat(_decoded(command.body)), Right.SUB),
        of_group(lambda command: groups_of_heartbeat(_decoded(command.body)), Right.SUB),
    )
    @in_pieces
    def heartbeat(self, connection: Connection, command: RemotingCommand) -> Pieces:
        """HEART_BEAT. A new consumer group is set up, with the retry topic its clients read.

        The registration comes first: a full disk, which has no room for the topic, must not keep
        consumers from sharing their queues. A group that has to be set up first, and is not, gets
        no retry topic, and its pulls are refused.

        Source: ClientManageProcessor.heartBeat.
        """
        beat = _decoded(command.body)
        _check_filters(beat.consumer_data_set)
        check_name("language", command.language)
        now = trio.current_time()
        try:
            self._producers.check(beat, connection)
            self._clients.check(beat, connection)
        except TooManyClientsError as error:
            raise _too_many(error, "nothing was changed") from error
        self._producers.heartbeat(beat, connection, command.language, command.version, now)
        if len(command.body) > LARGE_BYTES:
            yield
        consumer = Consumer(beat.client_id, connection, command.language, command.version, now)
        yield from self._take_groups(beat, consumer)
        return response_to(command, ext=HeartbeatResponseHeader("true", "true"))

    def _take_groups(self, beat: HeartbeatData, consumer: Consumer) -> Iterator[None]:
        """Register a client in its groups, and set up those that nobody set up, in pieces.

        Raises:
            RequestError: there is no room any more for some; or, after all of them are registered,
                a group or its retry topic cannot be set up.
        """
        groups, done = beat.consumer_data_set, 0
        trouble: RequestError | None = None
        for some in _pieces(groups):
            if done:
                yield
            # Again, for others may have taken room meanwhile.
            try:
                own = msgspec.structs.replace(beat, consumer_data_set=some)
                self._clients.check(own, consumer.connection)
            except TooManyClientsError as error:
                taken = f"the first {done} of its {len(groups)} groups were taken"
                raise _too_many(error, taken) from error
            changed = {
                data.group_name: self._clients.to_tell(data.group_name)
                for data in some
                if self._clients.join(data, consumer)
            }
            if not beat.without_sub:
                self._register_filters(some)
            self.notify(changed)
            if trouble is None and self._replication.refusal() is None:
                try:
                    self._ensure_groups([data.group_name for data in some])
                except RequestError as error:
                    trouble = error
            done += len(some)
        if trouble is not None:
            raise trouble

    def _register_filters(self, groups: list[ConsumerData]) -> None:
        """Source: DefaultConsumerIdsChangeListener.handle, at every heartbeat."""
        for data in groups:
            self._filters.register(
                data.group_name,
                [
                    SubscriptionFilter(
                        each.topic, each.sub_string, each.expression_type or TAG, each.sub_version
                    )
                    for each in data.subscription_data_set
                ],
            )

    @serves(
        RequestCode.UNREGISTER_CLIENT,
        (Resource.CLIENTS, Action.WRITE),
        of_group("consumer_group", Right.SUB),
        header=UnregisterClientRequestHeader,
    )
    def unregister(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_CLIENT."""
        header = command.decode_header(UnregisterClientRequestHeader)
        producer_group = header.producer_group
        if producer_group is not None:
            self._producers.leave(producer_group, header.client_id, connection)
        group = header.consumer_group
        if group is not None:
            self.notify({group: self._clients.leave(group, header.client_id)})
        return response_to(command)

    @serves(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        (Resource.CLIENTS, Action.READ),
        of_group("consumer_group", Right.SUB, Right.GET),
        header=GroupRequestHeader,
    )
    def consumer_list(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_LIST_BY_GROUP."""
        group = command.decode_header(GroupRequestHeader).consumer_group
        ids = self._clients.client_ids(group)
        if not ids:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return response_to(command, body=encode_json_body(ConsumerIdList(ids)))

    @serves(
        RequestCode.CHECK_CLIENT_CONFIG,
        (Resource.CLIENTS, Action.READ),
        of_topic(lambda command: _checked_config(command)[0], Right.SUB),
        of_group(lambda command: _checked_config(command)[1], Right.SUB),
    )
    def check_config(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """CHECK_CLIENT_CONFIG: whether a subscription other than by tags can be served.

        Source: ClientManageProcessor.checkClientConfig.
        """
        subscription = decode_json_body(command.body, CheckClientConfig).subscription_data
        if subscription is not None:
            self._subscriptions.check(subscription.sub_string, subscription.expression_type)
        return response_to(command)

    def notify(self, changed: Mapping[str, Iterable[Connection]]) -> None:
        """Write NOTIFY_CONSUMER_IDS_CHANGED to the connections of each group; no answer comes."""
        for group, connections in changed.items():
            config = self._tables.groups.get(group)
            if config is not None and not config.notify_consumer_ids_changed_enable:
                continue
            for connection in connections:
                self._to_clients.tell(
                    connection, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, GroupRequestHeader(group)
                )

    def _ensure_groups(self, names: list[str]) -> None:
        """Set up the groups that nobody set up, and their retry topics: a change each for all."""
        topics, groups = self._tables.topics, self._tables.groups
        unknown = groups.unknown_of(names)
        if unknown:
            self._tables.change_groups_soon(*unknown)
        known = [config for name in dict.fromkeys(names) if (config := groups.get(name))]
        missing = [
            group_topic(retry_topic(config.group_name), config.retry_queue_nums)
            for config in known
            if config.retry_queue_nums > 0 and topics.get(retry_topic(config.group_name)) is None
        ]
        missing = [config for config in missing if topic_complaint(config.topic_name) is None]
        if missing:
            self._tables.change_topics_soon(*missing)


def _pieces(groups: list[ConsumerData]) -> Iterator[list[ConsumerData]]:
    """Cut a row of groups into such as take a few milliseconds each."""
    piece: list[ConsumerData] = []
    work = 0
    for data in groups:
        piece.append(data)
        work += _work_of(data)
        if work >= WORK_PER_PIECE:
            yield piece
            piece, work = [], 0
    if piece:
        yield piece


def _work_of(data: ConsumerData) -> int:
    work = GROUP_WORK + len(data.subscription_data_set)
    for each in data.subscription_data_set:
        if not is_tag_type(each.expression_type):
            work += len(each.sub_string) // CHARS_PER_WORK
    return work


def _too_many(error: TooManyClientsError, what: str) -> RequestError:
    return RequestError(
        ResponseCode.SYSTEM_BUSY,
        f"too many clients are registered at this broker ({error}); {what}",
    )


def _check_filters(groups: list[ConsumerData]) -> None:
    chars = sum(
        len(each.sub_string)
        for data in groups
        for each in data.subscription_data_set
        if not is_tag_type(each.expression_type)
    )
    if chars > FILTER_CHARS_PER_HEARTBEAT_MAX:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"a heartbeat with {chars} characters of filters, the most allowed are"
            f" {FILTER_CHARS_PER_HEARTBEAT_MAX}; nothing was changed",
        )


def topics_of_heartbeat(beat: HeartbeatData) -> set[str]:
    """Return the topics that the consumers of a client subscribe to."""
    return {each.topic for data in beat.consumer_data_set for each in data.subscription_data_set}


def groups_of_heartbeat(beat: HeartbeatData) -> set[str]:
    """Return the consumer groups that a client is in."""
    return {data.group_name for data in beat.consumer_data_set}


def _checked_config(command: RemotingCommand) -> tuple[list[str], list[str]]:
    """Return the topic and the group that a client asks about."""
    asked = decode_json_body(command.body, CheckClientConfig)
    topic = [] if asked.subscription_data is None else [asked.subscription_data.topic]
    return topic, [asked.group] if asked.group else []
