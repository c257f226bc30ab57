"""The ext fields of each request and response, and the bodies that are JSON.

One record per header, camelCase on the wire. A field without a default must be there; a field that
is None is left out. `command.decode_header(TheHeader)` reads one,
`RemotingCommand(ext=TheHeader(..))` writes one.

Long because it is one list, of a record for each request and each answer.

Source: RocketMQ 5.3.3, org.apache.rocketmq.remoting.protocol.header and .body; recorded traffic.
"""

import enum

import msgspec

from tandem.wire.remoting_command import Int32, Int64


class Header(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """Base of the header records. Defaults must be None, since defaults are left out."""


# Sending


class SendMessageRequestHeader(Header, frozen=True):
    """SEND_MESSAGE with long names, as the Go client sends it."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    """Below 0: the broker picks one."""
    sys_flag: Int32
    born_timestamp: Int64
    """Milliseconds since 1970."""
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class SendMessageRequestHeaderV2(
    Header,
    frozen=True,
    rename={
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "batch": "m",
        "broker_name": "n",
    },
):
    """SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: the same fields under one-letter names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    batch: bool | None = None
    broker_name: str | None = None


class SendMessageResponseHeader(Header, frozen=True):
    """Answer to a send whose message is in the log (codes 0, 10, 11, 12)."""

    msg_id: str
    """The offset id, or the ids of a batch joined by commas."""
    queue_id: Int32
    queue_offset: Int64
    """Of the first message of a batch."""
    transaction_id: str | None = None
    """UNIQ_KEY."""
    batch_uniq_id: str | None = None
    msg_region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: str | None = msgspec.field(default=None, name="TRACE_ON")


# Pulling

PULL_FLAG_COMMIT_OFFSET = 1
PULL_FLAG_SUSPEND = 2
PULL_FLAG_SUBSCRIPTION = 4


class PullMessageRequestHeader(Header, frozen=True):
    """PULL_MESSAGE and LITE_PULL_MESSAGE. `sys_flag` is made of the PULL_FLAG bits."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    """Tags joined by `||`, or `*`."""
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class PullMessageResponseHeader(Header, frozen=True):
    """Answer to a pull; all four numbers with every status. Java fails without them."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64


# Offsets


class QueryConsumerOffsetRequestHeader(Header, frozen=True):
    """QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffsetRequestHeader(Header, frozen=True):
    """UPDATE_CONSUMER_OFFSET. A negative `commit_offset` says nothing (Node sends it)."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class ConsumerSendMsgBackRequestHeader(Header, frozen=True):
    """CONSUMER_SEND_MSG_BACK: a consumer could not handle the message at an offset of the log."""

    offset: Int64
    group: str
    delay_level: Int32
    """0: one more than the last time. Below 0: no more tries."""
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int32 | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")
    only_topic: str | None = None


class QueueRequestHeader(Header, frozen=True):
    """GET_MAX_OFFSET, GET_MIN_OFFSET and GET_EARLIEST_MSG_STORETIME: one queue."""

    topic: str
    queue_id: Int32
    only_master: bool | None = None
    """Ours: True has every node refuse that does not know all that was acknowledged. RocketMQ's
    brokers pass over it."""


class SearchOffsetRequestHeader(Header, frozen=True):
    """SEARCH_OFFSET_BY_TIMESTAMP. `boundary_type` is LOWER (default) or UPPER."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    """Store time in milliseconds since 1970."""
    boundary_type: str | None = None
    only_master: bool | None = None
    """As in `QueueRequestHeader`."""


class OffsetResponseHeader(Header, frozen=True):
    """Answer to the requests for one offset (14, 29, 30, 31)."""

    offset: Int64


class TimestampResponseHeader(Header, frozen=True):
    """Answer to GET_EARLIEST_MSG_STORETIME: a store time in milliseconds, -1 if there is none."""

    timestamp: Int64


class QueryMessageRequestHeader(Header, frozen=True):
    """QUERY_MESSAGE: messages of a topic by key. Times are store times in milliseconds."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponseHeader(Header, frozen=True):
    """Answer to QUERY_MESSAGE: how far the index has come. The body holds records back to back."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class ViewMessageRequestHeader(Header, frozen=True):
    """VIEW_MESSAGE_BY_ID: a physical offset."""

    offset: Int64


# Clients


class EndTransactionRequestHeader(Header, frozen=True):
    """END_TRANSACTION: what became of a half, which is at an offset of its queue and of the log."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    """8: commit, 12: rollback; else the producer does not know."""
    from_transaction_check: bool | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")
    only_topic: str | None = None
    """Ours, here and in CONSUMER_SEND_MSG_BACK: the record has to be of this topic."""


class CheckTransactionStateRequestHeader(Header, frozen=True):
    """CHECK_TRANSACTION_STATE, sent to a producer; the answer names these offsets."""

    topic: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = msgspec.field(default=None, name="bname")


class UnregisterClientRequestHeader(Header, frozen=True):
    """UNREGISTER_CLIENT."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GroupRequestHeader(Header, frozen=True):
    """GET_CONSUMER_LIST_BY_GROUP and NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str


class HeartbeatResponseHeader(Header, frozen=True):
    """Answer to HEART_BEAT: always "true" is safe with every client."""

    is_support_heart_beat_v2: str = msgspec.field(name="IS_SUPPORT_HEART_BEAT_V2")
    is_sub_change: str = msgspec.field(name="IS_SUB_CHANGE")


# Name server and administration


class GetRouteInfoRequestHeader(Header, frozen=True):
    """GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegistrationPart(enum.Enum):
    """What the topics of a registration are, if not the whole table. Ours."""

    FIRST = "first"
    """A piece: all topics with names below `part_to`. It begins anew."""
    NEXT = "next"
    """Another one: all from `part_from` on and below `part_to`. The last one has no upper bound."""
    CHANGE = "change"
    """What has changed since."""


class RegisterBrokerRequestHeader(Header, frozen=True):
    """REGISTER_BROKER. Ours: `client_addr`, which clients get instead of a master's own.

    And `part` with its bounds. RocketMQ's brokers split their tables as well, but their pieces say
    nothing of topics that are no more.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool | None = None
    body_crc32: Int32 | None = msgspec.field(default=None, name="bodyCrc32")  # 0: not checked
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    whole_table: bool | None = None
    """Ours: topics that are not listed are no more. RocketMQ's brokers list one topic at times."""
    client_addr: str | None = None
    part: RegistrationPart | None = None
    part_from: str | None = None
    part_to: str | None = None


class RegisterBrokerResponseHeader(Header, frozen=True):
    """Answer to REGISTER_BROKER: where the live master is, for a slave."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(Header, frozen=True):
    """UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class CreateTopicRequestHeader(Header, frozen=True):
    """UPDATE_AND_CREATE_TOPIC. `perm` bits: 4 read, 2 write, 1 inherit."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32
    order: bool
    attributes: str | None = None
    force: bool | None = None


# Bodies in JSON


class Body(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Base of the JSON bodies. Unlike in headers, every field is written, as fastjson does."""


class ProducerData(Body, frozen=True):
    """One producer group of a heartbeat."""

    group_name: str


class SubscriptionData(Body, frozen=True):
    """What a consumer wants of a topic: `sub_string` is tags joined by `||`, or `*`."""

    topic: str
    sub_string: str = "*"
    sub_version: Int64 = 0
    expression_type: str | None = "TAG"
    tags_set: list[str] = []
    code_set: list[int | str] = []
    """Hashes of the tags. The Go client may write them as text."""
    class_filter_mode: bool = False


class ConsumerData(Body, frozen=True):
    """One consumer group of a heartbeat."""

    group_name: str
    consume_type: str = "CONSUME_ACTIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True):
    """Body of HEART_BEAT."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: Int64 = 0
    without_sub: bool = False


class MessageQueueBody(Body, frozen=True):
    """One queue of one broker, in JSON."""

    broker_name: str
    queue_id: Int32
    topic: str


class LockBatchRequestBody(Body, frozen=True):
    """Body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: what a client wants to read in order."""

    client_id: str
    consumer_group: str
    mq_set: list[MessageQueueBody] = []
    only_this_broker: bool = False


class LockBatchResponseBody(Body, frozen=True):
    """Answer to LOCK_BATCH_MQ: the queues that the client holds now."""

    lock_ok_mq_set: list[MessageQueueBody] = msgspec.field(name="lockOKMQSet")


class ConsumerIdList(Body, frozen=True):
    """Body of the answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str]


class DataVersion(Body, frozen=True):
    """Version of a table; two are equal when all three numbers are."""

    state_version: Int64 = 0
    timestamp: Int64 = 0
    """Milliseconds since 1970 of the last change."""
    counter: Int64 = 0


class TopicConfig(Body, frozen=True):
    """One topic of a broker. `perm` bits: 4 read, 2 write, 1 inherit."""

    topic_name: str
    read_queue_nums: Int32 = 8
    write_queue_nums: Int32 = 8
    perm: Int32 = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = {}


class TopicConfigSerializeWrapper(Body, frozen=True):
    """The topics of a broker: body of GET_ALL_TOPIC_CONFIG, and part of a registration.

    The three `mapping` fields belong to static topics, which TandemMQ has not; Java's decoder wants
    them to be there.
    """

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()
    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_detail_map: dict[str, msgspec.Raw] = {}
    topic_queue_mapping_info_map: dict[str, msgspec.Raw] = {}


class RegisterBrokerBody(Body, frozen=True):
    """Body of REGISTER_BROKER, not compressed."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper
    filter_server_list: list[str] = []
    removed_topics: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Ours, of a change: topics that are no more."""


class ConsumerOffsetTableBody(Body, frozen=True):
    """Body of the answer to GET_ALL_CONSUMER_OFFSET: `topic@group` to queue id to offset."""

    offset_table: dict[str, dict[Int32, Int64]]
    data_version: DataVersion = DataVersion()


class KVTable(Body, frozen=True):
    """Body of the answer to REGISTER_BROKER: topics with an order, which TandemMQ has none of."""

    table: dict[str, str] = {}


class HAConnectionRuntimeInfo(Body, frozen=True):
    """A slave, `diff` bytes behind. `name` is ours, and `reason`: why it is not in sync."""

    addr: str
    slave_ack_offset: int
    diff: int
    in_sync: bool
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    name: str = ""
    reason: str = ""


class HAClientRuntimeInfo(Body, frozen=True):
    """What a slave knows of its master."""

    master_addr: str = ""
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


class HARuntimeInfo(Body, frozen=True):
    """Body of the answer to GET_BROKER_HA_STATUS. `damage` and `refusal` (of messages) are ours."""

    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    ha_client_runtime_info: HAClientRuntimeInfo = HAClientRuntimeInfo()
    damage: str = ""
    refusal: str = ""
