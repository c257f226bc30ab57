"""One object for each family of requests, out of the parts of a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from ha.results import PutWait
from node.broker.inspection import inspections
from node.broker.parts import BrokerParts
from node.handlers.ack_message import AckMessage
from node.handlers.acl_requests import AclRequests
from node.handlers.admin import Admin
from node.handlers.client_heartbeat import ClientHeartbeat
from node.handlers.client_info import ClientInfo
from node.handlers.consumer_offset import ConsumerOffset
from node.handlers.delete_topic import DeleteTopic
from node.handlers.end_transaction import EndTransactions
from node.handlers.lock_queues import LockQueues
from node.handlers.parked_puts import ParkedPuts
from node.handlers.pop_message import PopMessage
from node.handlers.pull_message import PullMessage
from node.handlers.pull_runs import PullRunHandler, pull_runs
from node.handlers.queue_offset import QueueOffset
from node.handlers.recall_message import RecallMessage
from node.handlers.reply_message import ReplyMessage
from node.handlers.reset_offset import ResetOffset
from node.handlers.resume_check import ResumeCheck
from node.handlers.send_back import SendBack
from node.handlers.send_message import SendMessage
from node.handlers.send_runs import SendRunHandler, send_runs
from node.handlers.subscription_groups import SubscriptionGroups
from node.handlers.user_requests import UserRequests
from node.security.seals import SenderOf
from store.delayed_delivery import DelayedDelivery
from tandem.cluster_file.choices import FlushDiskType
from tandem.wire.route import TopicRouteData
from tandem.wire.secret_keys import Purpose, key_of


class Handlers(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker serves.

    Attributes:
        families: One object for each family of requests, with the functions that declare them.
        clients: The family that knows which clients there are.
        runs: Takes requests to send that came together.
        pull_runs: Takes pulls that came together.
        pop: The family that holds requests of POP.
        parked: The puts that wait for disks or replicas.
    """

    families: tuple[object, ...]
    clients: ClientHeartbeat
    runs: SendRunHandler
    pull_runs: PullRunHandler
    pop: PopMessage
    parked: ParkedPuts


def handlers_of(
    parts: BrokerParts,
    *,
    when_known: Callable[[Callable[[], None]], None],
    route_of: Callable[[str], TopicRouteData | None],
    delayed: Callable[[], DelayedDelivery | None],
    spawn: Callable[[Callable[[], Awaitable[None]]], None],
    sender_of: SenderOf | None = None,
    refused: Callable[[str], dict[str, int]] = lambda _: {},
) -> Handlers:
    """Put all of them together.

    Args:
        parts: What they share.
        when_known: Calls back when the name servers know the topics there are.
        route_of: What the name server beside the broker knows of a topic.
        delayed: What delivers messages later; None where nothing does.
        spawn: Starts a task that ends with the broker.
        sender_of: Says who has signed what came together; None: nobody signs.
        refused: How many requests of a user were over a bound, by the bound.
    """
    send, pull = _sender(parts), _puller(parts)
    store, tables, replication = parts.store, parts.tables, parts.replication
    timeout_seconds, resets = parts.timeout_seconds, parts.resets
    clients = _registry(parts)
    pop = _popper(parts)
    families = (
        send,
        EndTransactions(store, parts.transactions, send, replication),
        ResumeCheck(store, send),
        SendBack(store, tables, send, parts.random, parts.stats),
        _replier(parts, send),
        _recaller(parts, send),
        pull,
        pop,
        AckMessage(store, tables, parts.pop, parts.wall_clock_ms),
        ConsumerOffset(store, tables, resets, timeout_seconds=timeout_seconds),
        _resetter(parts),
        QueueOffset(store, replication.why_behind),
        clients,
        _client_info(parts),
        LockQueues(parts.locks, replication),
        DeleteTopic(tables, replication, resets, parts.own_names, timeout_seconds=timeout_seconds),
        SubscriptionGroups(tables, replication, timeout_seconds=timeout_seconds),
        _user_requests(parts, refused),
        AclRequests(tables, replication, timeout_seconds=timeout_seconds),
        Admin(
            tables,
            replication.runtime_info,
            when_known,
            parts.own_names,
            timeout_seconds=timeout_seconds,
        ),
        *inspections(parts, route_of=route_of, delayed=delayed, spawn=spawn),
    )
    runs = send_runs(
        store, suffix=parts.stamp.suffix, host=parts.host, are_signed=sender_of is not None
    )
    return Handlers(
        families=families,
        clients=clients,
        runs=SendRunHandler(store, tables, replication, send, runs, sender_of),
        pull_runs=PullRunHandler(store, tables, pull, parts.stats, pull_runs()),
        pop=pop,
        parked=send.parked,
    )


def _client_info(parts: BrokerParts) -> ClientInfo:
    return ClientInfo(
        parts.store,
        parts.tables,
        parts.clients,
        parts.producers,
        parts.to_clients,
        wall_clock_ms=parts.wall_clock_ms,
    )


def _puller(parts: BrokerParts) -> PullMessage:
    return PullMessage(
        parts.store, parts.tables, parts.subscriptions, parts.holds, parts.resets, parts.stats
    )


def _user_requests(parts: BrokerParts, refused: Callable[[str], dict[str, int]]) -> UserRequests:
    return UserRequests(
        parts.tables,
        parts.replication,
        key_of(parts.config.cluster.secret, Purpose.USERS),
        parts.random,
        refused,
        timeout_seconds=parts.timeout_seconds,
    )


def _popper(parts: BrokerParts) -> PopMessage:
    return PopMessage(
        parts.store,
        parts.tables,
        parts.subscriptions,
        parts.pop,
        parts.stats,
        parts.random,
        parts.config.node.group,
    )


def _sender(parts: BrokerParts) -> SendMessage:
    store, settings = parts.store, parts.config.cluster
    flush = None
    if settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        flush = PutWait(
            store.flush_service.submit,
            lambda: store.flushed_where,
            settings.store.sync_flush_timeout_ms / 1000,
        )
    return SendMessage(
        store,
        parts.tables,
        parts.stamp,
        parts.replication,
        flush,
        parts.random,
        parts.locks,
        parts.config.node.group,
        parts.put_times,
        rejects_transactions=settings.broker.reject_transaction_message,
    )


def _replier(parts: BrokerParts, send: SendMessage) -> ReplyMessage:
    return ReplyMessage(
        parts.store,
        parts.tables,
        send,
        parts.stamp,
        parts.producers,
        parts.to_clients,
        parts.host,
        store_reply_message_enable=parts.config.cluster.broker.store_reply_message_enable,
        wall_clock_ms=parts.wall_clock_ms,
    )


def _recaller(parts: BrokerParts, send: SendMessage) -> RecallMessage:
    return RecallMessage(
        parts.tables,
        send,
        parts.config.node.group,
        recall_message_enable=parts.config.cluster.broker.recall_message_enable,
        wall_clock_ms=parts.wall_clock_ms,
    )


def _resetter(parts: BrokerParts) -> ResetOffset:
    return ResetOffset(
        parts.store,
        parts.tables,
        parts.resets,
        parts.holds,
        parts.pop,
        parts.config.node.group,
        timeout_seconds=parts.timeout_seconds,
    )


def _registry(parts: BrokerParts) -> ClientHeartbeat:
    return ClientHeartbeat(
        parts.clients,
        parts.producers,
        parts.tables,
        parts.replication,
        parts.to_clients,
        parts.filters,
        parts.subscriptions,
    )
