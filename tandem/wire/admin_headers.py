"""Header records and bodies of requests of operators; see `tandem.wire.request_headers`."""

from __future__ import annotations

import msgspec

from tandem.wire.errors import MalformedFrameError
from tandem.wire.remoting_command import Int32, Int64
from tandem.wire.request_headers import Body, Header, SubscriptionData, TopicConfig
from tandem.wire.untrusted import UnreadableError, decode_text


class DeleteTopicRequestHeader(Header, frozen=True):
    """DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


class TopicConfigList(msgspec.Struct, frozen=True, rename="camel"):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig] = []


class LogicQueueMappingItem(msgspec.Struct, frozen=True, rename="camel"):
    """Where a part of one queue of a static topic is. Offsets of -1: not decided, or no end."""

    gen: int = 0
    queue_id: int = 0
    bname: str = ""
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1


class TopicQueueMappingDetail(msgspec.Struct, frozen=True, rename="camel"):
    """Body of UPDATE_AND_CREATE_STATIC_TOPIC: which queues of a static topic a broker has."""

    topic: str | None = None
    total_queues: int = 0
    bname: str | None = None
    hosted_queues: dict[int, list[LogicQueueMappingItem]] = {}
    """By their number in the whole topic: their parts, the oldest first."""


class DeleteSubscriptionGroupRequestHeader(Header, frozen=True):
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    clean_offset: bool | None = None


class GetGroupConfigRequestHeader(Header, frozen=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class UpdateGroupForbiddenRequestHeader(Header, frozen=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str
    topic: str
    readable: bool | None = None


class GroupForbidden(Body, frozen=True):
    """Body of the answer to it."""

    group: str
    topic: str
    readable: bool


class ProducerGroupRequestHeader(Header, frozen=True):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class ClientConnection(Body, frozen=True):
    """One client, as operators see it. RocketMQ's `Connection`."""

    client_id: str
    client_addr: str
    language: str
    version: Int32


class ProducerConnection(Body, frozen=True):
    """Body of the answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[ClientConnection]


class ConsumerConnection(Body, frozen=True):
    """Body of the answer to GET_CONSUMER_CONNECTION_LIST."""

    connection_set: list[ClientConnection]
    subscription_table: dict[str, SubscriptionData]
    consume_type: str
    message_model: str
    consume_from_where: str


class ProducerInfo(Body, frozen=True):
    """One producer in the answer to GET_ALL_PRODUCER_INFO."""

    client_id: str
    remote_ip: str = msgspec.field(name="remoteIP")
    language: str
    version: Int32
    last_update_timestamp: Int64


class ProducerTableInfo(Body, frozen=True):
    """Body of the answer to GET_ALL_PRODUCER_INFO."""

    data: dict[str, list[ProducerInfo]]


class ClientRequestHeader(Header, frozen=True):
    """GET_CONSUMER_RUNNING_INFO and CONSUME_MESSAGE_DIRECTLY, to a broker and from it."""

    consumer_group: str
    client_id: str | None = None
    jstack_enable: bool | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


class ResetOffsetRequestHeader(Header, frozen=True):
    """INVOKE_BROKER_TO_RESET_OFFSET; RESET_CONSUMER_CLIENT_OFFSET, from a broker."""

    topic: str
    group: str
    timestamp: Int64
    queue_id: Int32 | None = None
    offset: Int64 | None = None
    is_force: bool | None = None


class ConsumerStatusRequestHeader(Header, frozen=True):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS; GET_CONSUMER_STATUS_FROM_CLIENT, from a broker."""

    topic: str
    group: str
    client_addr: str | None = None


class CloneGroupOffsetRequestHeader(Header, frozen=True):
    """CLONE_GROUP_OFFSET."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class ResumeCheckHalfMessageRequestHeader(Header, frozen=True):
    """RESUME_CHECK_HALF_MESSAGE. `msg_id` is an offset id."""

    msg_id: str | None = None
    topic: str | None = None


class GroupTopicRequestHeader(Header, frozen=True):
    """QUERY_TOPICS_BY_CONSUMER, QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str | None = None


class SubscriptionBody(Body, frozen=True):
    """Body of the answer to QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


def settings_of(body: bytes) -> dict[str, str]:
    """Return what a text of properties says, `key=value` a line: UPDATE_BROKER_CONFIG and its kin.

    Raises:
        MalformedFrameError: it is no such text.
    """
    try:
        lines = decode_text(body).splitlines()
    except UnreadableError as error:
        raise MalformedFrameError(f"properties: {error}") from error
    settings = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise MalformedFrameError(f"properties: {line[:100]!r} is not KEY=VALUE")
        settings[key.strip()[:100]] = value.strip()
    return settings


class UserRequestHeader(Header, frozen=True):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER."""

    username: str | None = None


class ListUserRequestHeader(Header, frozen=True):
    """AUTH_LIST_USER. `filter` is a part of the name."""

    filter: str | None = None


class AclRequestHeader(Header, frozen=True):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL."""

    subject: str | None = None


class DeleteAclRequestHeader(Header, frozen=True):
    """AUTH_DELETE_ACL. Without `resource` all of the policy goes."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclRequestHeader(Header, frozen=True):
    """AUTH_LIST_ACL. Both are parts of what they filter."""

    subject_filter: str | None = None
    resource_filter: str | None = None
