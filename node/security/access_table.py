"""What each request does to what, and who has to be trusted for it: one line a request code.

A code without a line here is not served; see `Guard.guarded`.
"""

from __future__ import annotations

import enum
from typing import Final

from tandem.wire.request_code import RequestCode


class Standing(enum.IntEnum):
    """Who sends a request; who stands higher may all that the others may."""

    STRANGER = 0
    """Anybody who reaches the port: nothing is known of clients yet."""
    ADMITTED = 1
    """A RocketMQ broker that the cluster file names, known by its address."""
    OPERATOR = 2
    """Signs as RocketMQ's tools do, with the key that is made of the cluster's secret for them."""
    NODE = 3
    """Knows the secret of the cluster: a node, or an operator who has the file."""


class Resource(enum.Enum):
    """What a request is about."""

    MESSAGES = "messages"
    TOPICS = "topics"
    ORDINARY_TOPICS = "ordinary topics"
    SYSTEM_TOPICS = "topics of the system"
    GROUPS = "consumer groups"
    OFFSETS = "consumer offsets"
    CLIENTS = "clients"
    ROUTES = "routes"
    VALUES = "values that operators keep at a name server"
    REPLICATION = "replication"
    LOG = "the log"
    BROKER = "the broker itself"


class Action(enum.Enum):
    """What a request does to it."""

    READ = "read"
    WRITE = "write"
    ORDER = "order"


Access = tuple[Resource, Action]

ACCESS: Final[dict[int, Access]] = {
    RequestCode.SEND_MESSAGE: (Resource.MESSAGES, Action.WRITE),
    RequestCode.SEND_MESSAGE_V2: (Resource.MESSAGES, Action.WRITE),
    RequestCode.SEND_BATCH_MESSAGE: (Resource.MESSAGES, Action.WRITE),
    RequestCode.CONSUMER_SEND_MSG_BACK: (Resource.MESSAGES, Action.WRITE),
    RequestCode.SEND_REPLY_MESSAGE: (Resource.MESSAGES, Action.WRITE),
    RequestCode.SEND_REPLY_MESSAGE_V2: (Resource.MESSAGES, Action.WRITE),
    RequestCode.RECALL_MESSAGE: (Resource.MESSAGES, Action.WRITE),
    RequestCode.END_TRANSACTION: (Resource.MESSAGES, Action.WRITE),
    RequestCode.PULL_MESSAGE: (Resource.MESSAGES, Action.READ),
    RequestCode.LITE_PULL_MESSAGE: (Resource.MESSAGES, Action.READ),
    RequestCode.QUERY_MESSAGE: (Resource.MESSAGES, Action.READ),
    RequestCode.VIEW_MESSAGE_BY_ID: (Resource.MESSAGES, Action.READ),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (Resource.MESSAGES, Action.READ),
    RequestCode.GET_MAX_OFFSET: (Resource.MESSAGES, Action.READ),
    RequestCode.GET_MIN_OFFSET: (Resource.MESSAGES, Action.READ),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (Resource.MESSAGES, Action.READ),
    RequestCode.QUERY_CONSUMER_OFFSET: (Resource.OFFSETS, Action.READ),
    RequestCode.GET_ALL_CONSUMER_OFFSET: (Resource.OFFSETS, Action.READ),
    RequestCode.UPDATE_CONSUMER_OFFSET: (Resource.OFFSETS, Action.WRITE),
    RequestCode.HEART_BEAT: (Resource.CLIENTS, Action.WRITE),
    RequestCode.UNREGISTER_CLIENT: (Resource.CLIENTS, Action.WRITE),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (Resource.CLIENTS, Action.READ),
    RequestCode.CHECK_CLIENT_CONFIG: (Resource.CLIENTS, Action.READ),
    RequestCode.LOCK_BATCH_MQ: (Resource.CLIENTS, Action.WRITE),
    RequestCode.UNLOCK_BATCH_MQ: (Resource.CLIENTS, Action.WRITE),
    RequestCode.GET_ALL_TOPIC_CONFIG: (Resource.TOPICS, Action.READ),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (Resource.GROUPS, Action.WRITE),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (Resource.GROUPS, Action.WRITE),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (Resource.GROUPS, Action.WRITE),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (Resource.GROUPS, Action.READ),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (Resource.GROUPS, Action.READ),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: (Resource.GROUPS, Action.WRITE),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (Resource.OFFSETS, Action.WRITE),
    RequestCode.CLONE_GROUP_OFFSET: (Resource.OFFSETS, Action.WRITE),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (Resource.CLIENTS, Action.READ),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: (Resource.CLIENTS, Action.READ),
    RequestCode.GET_ALL_PRODUCER_INFO: (Resource.CLIENTS, Action.READ),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: (Resource.OFFSETS, Action.READ),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: (Resource.CLIENTS, Action.READ),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (Resource.CLIENTS, Action.READ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (Resource.CLIENTS, Action.WRITE),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (Resource.CLIENTS, Action.READ),
    # Refused for topics of the system, whoever asks.
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (Resource.ORDINARY_TOPICS, Action.WRITE),
    RequestCode.DELETE_TOPIC_IN_BROKER: (Resource.ORDINARY_TOPICS, Action.WRITE),
    # Of a topic of the system: see `Guard`.
    RequestCode.UPDATE_AND_CREATE_TOPIC: (Resource.TOPICS, Action.WRITE),
    RequestCode.GET_TOPIC_STATS_INFO: (Resource.TOPICS, Action.READ),
    RequestCode.GET_TOPIC_CONFIG: (Resource.TOPICS, Action.READ),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (Resource.TOPICS, Action.READ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (Resource.CLIENTS, Action.READ),
    RequestCode.QUERY_ASSIGNMENT: (Resource.CLIENTS, Action.READ),
    RequestCode.SET_MESSAGE_REQUEST_MODE: (Resource.CLIENTS, Action.WRITE),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: (Resource.CLIENTS, Action.READ),
    RequestCode.QUERY_CONSUME_QUEUE: (Resource.MESSAGES, Action.READ),
    RequestCode.GET_CONSUME_STATS: (Resource.OFFSETS, Action.READ),
    RequestCode.GET_BROKER_CONSUME_STATS: (Resource.OFFSETS, Action.READ),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (Resource.OFFSETS, Action.READ),
    RequestCode.QUERY_CORRECTION_OFFSET: (Resource.OFFSETS, Action.READ),
    RequestCode.GET_ALL_DELAY_OFFSET: (Resource.OFFSETS, Action.READ),
    RequestCode.GET_BROKER_RUNTIME_INFO: (Resource.BROKER, Action.READ),
    RequestCode.VIEW_BROKER_STATS_DATA: (Resource.BROKER, Action.READ),
    RequestCode.GET_BROKER_CONFIG: (Resource.BROKER, Action.READ),
    # It decides how soon messages are deleted.
    RequestCode.UPDATE_BROKER_CONFIG: (Resource.BROKER, Action.ORDER),
    # These delete nothing that is not past its time.
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: (Resource.BROKER, Action.WRITE),
    RequestCode.CLEAN_UNUSED_TOPIC: (Resource.BROKER, Action.WRITE),
    RequestCode.DELETE_EXPIRED_COMMITLOG: (Resource.BROKER, Action.WRITE),
    RequestCode.REGISTER_BROKER: (Resource.ROUTES, Action.WRITE),
    RequestCode.UNREGISTER_BROKER: (Resource.ROUTES, Action.WRITE),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: (Resource.ROUTES, Action.ORDER),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: (Resource.ROUTES, Action.ORDER),
    # Of itself alone, by the connection that it registered by.
    RequestCode.BROKER_HEARTBEAT: (Resource.ROUTES, Action.READ),
    # Changes nothing: see `NameServerAdmin.delete_topic`.
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (Resource.ROUTES, Action.READ),
    RequestCode.GET_TOPICS_BY_CLUSTER: (Resource.ROUTES, Action.READ),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: (Resource.ROUTES, Action.READ),
    RequestCode.GET_UNIT_TOPIC_LIST: (Resource.ROUTES, Action.READ),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (Resource.ROUTES, Action.READ),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (Resource.ROUTES, Action.READ),
    RequestCode.QUERY_DATA_VERSION: (Resource.ROUTES, Action.READ),
    RequestCode.GET_BROKER_MEMBER_GROUP: (Resource.ROUTES, Action.READ),
    RequestCode.GET_NAMESRV_CONFIG: (Resource.ROUTES, Action.READ),
    # Refused, whoever asks.
    RequestCode.UPDATE_NAMESRV_CONFIG: (Resource.ROUTES, Action.READ),
    RequestCode.PUT_KV_CONFIG: (Resource.VALUES, Action.WRITE),
    RequestCode.GET_KV_CONFIG: (Resource.VALUES, Action.READ),
    RequestCode.DELETE_KV_CONFIG: (Resource.VALUES, Action.WRITE),
    RequestCode.GET_KVLIST_BY_NAMESPACE: (Resource.VALUES, Action.READ),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (Resource.ROUTES, Action.READ),
    RequestCode.GET_BROKER_CLUSTER_INFO: (Resource.ROUTES, Action.READ),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (Resource.ROUTES, Action.READ),
    # Changes nothing: see `Admin.reset_master_flush_offset`.
    RequestCode.RESET_MASTER_FLUSH_OFFSET: (Resource.REPLICATION, Action.READ),
    RequestCode.GET_BROKER_HA_STATUS: (Resource.REPLICATION, Action.READ),
    RequestCode.GET_BROKER_EPOCH_CACHE: (Resource.REPLICATION, Action.READ),
    RequestCode.FENCED_STATUS: (Resource.REPLICATION, Action.READ),
    RequestCode.FENCED_COMMAND: (Resource.REPLICATION, Action.ORDER),
    RequestCode.LOG_FINGERPRINTS: (Resource.LOG, Action.READ),
    RequestCode.LOG_BYTES: (Resource.LOG, Action.READ),
    RequestCode.LOG_DAMAGED: (Resource.LOG, Action.ORDER),
}

NEEDED: Final[dict[Access, Standing]] = {
    (Resource.ROUTES, Action.WRITE): Standing.ADMITTED,
    (Resource.ROUTES, Action.ORDER): Standing.OPERATOR,
    (Resource.BROKER, Action.ORDER): Standing.OPERATOR,
    (Resource.SYSTEM_TOPICS, Action.WRITE): Standing.OPERATOR,
    (Resource.REPLICATION, Action.ORDER): Standing.NODE,
    (Resource.LOG, Action.READ): Standing.NODE,
    (Resource.LOG, Action.ORDER): Standing.NODE,
}
"""Who has to be trusted, where not everybody is."""


def needed(access: Access) -> Standing:
    """Return the least standing that is enough."""
    return NEEDED.get(access, Standing.STRANGER)
