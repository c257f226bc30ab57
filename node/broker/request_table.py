"""Which handler answers which request: the table to find a request code in.

To serve one more request: its number in `tandem/wire/request_code.py`, its header in
`request_headers.py`, a handler in `node/handlers/`, and its line here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.broker.inspection import Inspection
from node.handlers.admin import Admin
from node.handlers.client_heartbeat import ClientHeartbeat
from node.handlers.client_info import ClientInfo
from node.handlers.consumer_offset import ConsumerOffset
from node.handlers.delete_topic import DeleteTopic
from node.handlers.end_transaction import EndTransactions
from node.handlers.lock_queues import LockQueues
from node.handlers.pull_message import PullMessage
from node.handlers.pull_runs import PullRunHandler
from node.handlers.queue_offset import QueueOffset
from node.handlers.recall_message import RecallMessage
from node.handlers.reply_message import ReplyMessage
from node.handlers.reset_offset import ResetOffset
from node.handlers.send_back import SendBack
from node.handlers.send_message import SendMessage
from node.handlers.send_runs import SendRunHandler
from node.handlers.subscription_groups import SubscriptionGroups
from tandem.wire.request_code import RequestCode

if TYPE_CHECKING:
    from node.remoting.dispatcher import Handler


class Handlers(msgspec.Struct, frozen=True, kw_only=True):
    """One object for each family of requests."""

    send: SendMessage
    runs: SendRunHandler
    pull_runs: PullRunHandler
    back: SendBack
    reply: ReplyMessage
    recall: RecallMessage
    transactions: EndTransactions
    pull: PullMessage
    offset: ConsumerOffset
    reset: ResetOffset
    queue: QueueOffset
    clients: ClientHeartbeat
    client_info: ClientInfo
    locks: LockQueues
    delete_topic: DeleteTopic
    groups: SubscriptionGroups
    admin: Admin
    inspect: Inspection


def request_table(to: Handlers) -> dict[int, Handler]:
    """Return everything that a broker answers on its client port."""
    return {
        RequestCode.SEND_MESSAGE: to.send.handle,
        RequestCode.SEND_MESSAGE_V2: to.send.handle,
        RequestCode.SEND_BATCH_MESSAGE: to.send.handle,
        RequestCode.CONSUMER_SEND_MSG_BACK: to.back.handle,
        RequestCode.SEND_REPLY_MESSAGE: to.reply.handle,
        RequestCode.SEND_REPLY_MESSAGE_V2: to.reply.handle,
        RequestCode.RECALL_MESSAGE: to.recall.handle,
        RequestCode.END_TRANSACTION: to.transactions.handle,
        RequestCode.PULL_MESSAGE: to.pull.handle,
        RequestCode.LITE_PULL_MESSAGE: to.pull.handle,
        RequestCode.QUERY_CONSUMER_OFFSET: to.offset.query,
        RequestCode.UPDATE_CONSUMER_OFFSET: to.offset.update,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: to.queue.search,
        RequestCode.GET_MAX_OFFSET: to.queue.max_offset,
        RequestCode.GET_MIN_OFFSET: to.queue.min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: to.queue.earliest_store_time,
        RequestCode.QUERY_MESSAGE: to.queue.query_message,
        RequestCode.VIEW_MESSAGE_BY_ID: to.queue.view_message,
        RequestCode.HEART_BEAT: to.clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: to.clients.unregister,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: to.clients.consumer_list,
        RequestCode.CHECK_CLIENT_CONFIG: to.clients.check_config,
        RequestCode.LOCK_BATCH_MQ: to.locks.lock,
        RequestCode.UNLOCK_BATCH_MQ: to.locks.unlock,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: to.groups.update,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: to.groups.update_list,
        RequestCode.DELETE_SUBSCRIPTIONGROUP: to.groups.delete,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: to.groups.all,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: to.groups.one,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: to.groups.forbid,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: to.reset.reset,
        RequestCode.CLONE_GROUP_OFFSET: to.reset.clone,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: to.client_info.consumers,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: to.client_info.producers,
        RequestCode.GET_ALL_PRODUCER_INFO: to.client_info.all_producers,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: to.client_info.topics,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: to.client_info.subscription,
        RequestCode.GET_CONSUMER_RUNNING_INFO: to.client_info.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: to.client_info.consume_directly,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: to.client_info.status,
        RequestCode.DELETE_TOPIC_IN_BROKER: to.delete_topic.handle,
        RequestCode.UPDATE_AND_CREATE_TOPIC: to.admin.create_topic,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: to.admin.create_topics,
        RequestCode.GET_ALL_TOPIC_CONFIG: to.admin.topic_configs,
        RequestCode.GET_ALL_CONSUMER_OFFSET: to.admin.consumer_offsets,
        RequestCode.GET_BROKER_HA_STATUS: to.admin.ha_status,
        RequestCode.RESET_MASTER_FLUSH_OFFSET: to.admin.reset_master_flush_offset,
        **_inspection(to.inspect),
    }


def _inspection(to: Inspection) -> dict[int, Handler]:
    return {
        RequestCode.GET_TOPIC_STATS_INFO: to.topic.topic_stats,
        RequestCode.GET_TOPIC_CONFIG: to.topic.topic_config,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: to.topic.consumed_by,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: to.topic.system_topics,
        RequestCode.QUERY_CONSUME_QUEUE: to.topic.consume_queue,
        RequestCode.GET_CONSUME_STATS: to.consume.consume_stats,
        RequestCode.GET_BROKER_CONSUME_STATS: to.consume.broker_consume_stats,
        RequestCode.QUERY_CONSUME_TIME_SPAN: to.consume.time_span,
        RequestCode.QUERY_CORRECTION_OFFSET: to.consume.correction_offset,
        RequestCode.GET_BROKER_RUNTIME_INFO: to.runtime.handle,
        RequestCode.VIEW_BROKER_STATS_DATA: to.items.handle,
        RequestCode.GET_BROKER_CONFIG: to.settings.get,
        RequestCode.UPDATE_BROKER_CONFIG: to.settings.update,
        RequestCode.GET_ALL_DELAY_OFFSET: to.delays.handle,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: to.clean.expired_consume_queue,
        RequestCode.CLEAN_UNUSED_TOPIC: to.clean.unused_topic,
        RequestCode.DELETE_EXPIRED_COMMITLOG: to.clean.expired_commit_log,
        RequestCode.QUERY_ASSIGNMENT: to.assignment.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: to.assignment.set_mode,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: to.assignment.modes,
    }
